"""What happens around a step of the host's training loop."""
