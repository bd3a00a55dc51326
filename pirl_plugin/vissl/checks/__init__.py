"""Configurations that are refused before a run."""
