"""What a checkpoint is worth: kNN, the quickstart, sweeps, and the paper's tables."""
