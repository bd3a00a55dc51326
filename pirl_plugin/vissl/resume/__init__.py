"""Stop, save and resume a run."""
