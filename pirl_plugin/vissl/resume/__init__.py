"""Stop, save and continue a run: everything that this takes, and nothing else."""
