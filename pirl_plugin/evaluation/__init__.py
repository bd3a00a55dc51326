"""Evaluate a checkpoint: features, kNN, measures of the bank, and the page of a report."""
