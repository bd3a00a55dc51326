"""Patches of VISSL: for today's Python and torch, and for saving, resuming and loading our runs."""
