"""Hooks of the host's training loop; ``run/pirl_task.py`` has the list of them, in order."""
