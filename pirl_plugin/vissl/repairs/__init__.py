"""Patches for VISSL: to run on current packages, to save safely, and to take unlabeled images.

A patch's docstring begins with its kind. ``Broke``: it worked with older packages, or in an older
VISSL. ``Never worked``: VISSL has always had the fault. ``Feature``: VISSL does not offer it.
"""
