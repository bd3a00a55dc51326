"""Thin classes through which VISSL uses our loss, head, trunks, transforms and data sources."""
