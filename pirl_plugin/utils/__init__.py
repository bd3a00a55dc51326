"""What every layer uses, and what imports nothing of ours: ranks, numba, Hydra overrides, files."""
