"""How fast it is, beside VISSL's own PIRL in the same process."""
