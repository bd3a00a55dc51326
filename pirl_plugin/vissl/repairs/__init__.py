"""Patches for VISSL: run on current packages, save safely, and accept unlabeled images.

A patch's docstring begins with its kind. ``Broke``: it worked with older packages, or in an older
VISSL. ``Never worked``: VISSL has always had the fault. ``Feature``: VISSL does not offer it.
"""
