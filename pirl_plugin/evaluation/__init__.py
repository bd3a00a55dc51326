"""What a checkpoint is worth: kNN, invariance, measures of the bank, and the paper's tables."""
