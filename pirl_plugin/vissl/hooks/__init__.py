"""Hooks of the host's training loop; ``of_run`` has the list of them, in order."""
