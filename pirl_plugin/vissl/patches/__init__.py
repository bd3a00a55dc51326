"""Patches of VISSL: repairs on today's Python and torch, and how our runs save, resume and load."""
