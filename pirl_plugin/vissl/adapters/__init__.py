"""Thin classes that adapt our loss, head, trunks, transforms and data sources to VISSL."""
