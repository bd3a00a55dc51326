"""The paper's method. Read estimators, scores, negatives, bank, sharded_bank, loss."""
