"""Read, compare, convert and write checkpoints: the one place that opens them."""
