"""Eq. 3–5 of the paper: pure functions of scores, and the loss that the host runs."""
