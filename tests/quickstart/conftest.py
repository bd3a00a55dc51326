"""Fixtures of the tests of sweeps."""

from tests.helpers.sweeps import host, voc07

__all__ = ["host", "voc07"]
