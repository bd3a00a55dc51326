"""Evaluate a checkpoint: kNN, invariance, measures of the bank, and the paper's tables."""
