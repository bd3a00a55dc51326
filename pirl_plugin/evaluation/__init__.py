"""Evaluate a checkpoint: features, kNN, bank measures, and the report page."""
