"""Read, compare, convert and write checkpoints; no other package opens them."""
