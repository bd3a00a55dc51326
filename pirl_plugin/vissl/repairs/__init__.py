"""Patches of VISSL: for today's Python and torch, and for saving, resuming and loading our runs.

The docstring of a patch begins with its kind. ``Broke``: it worked with older packages, or in an
older VISSL. ``Never worked``: VISSL has always had the fault. ``Feature``: VISSL does not offer it.
"""
