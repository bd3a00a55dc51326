"""Which row of the memory bank is which image."""
