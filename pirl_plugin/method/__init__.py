"""The method of the paper; read estimators, scores, negatives, bank, sharded_bank, loss."""
