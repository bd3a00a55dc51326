"""Sweeps of λ, of the permutations and of the negatives (Sec. 4)."""
