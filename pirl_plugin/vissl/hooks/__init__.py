"""Hooks for VISSL's training loop; ``run/pirl_task.py`` lists them in order."""
