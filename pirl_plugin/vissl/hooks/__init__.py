"""Hooks of the host's training loop."""
