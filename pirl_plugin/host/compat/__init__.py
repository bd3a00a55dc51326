"""Compatibility patches: repairs of VISSL on today's Python, torch and setuptools."""
