"""Measure the speed against VISSL's own PIRL in the same process."""
