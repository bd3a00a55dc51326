"""How our parts get into an unmodified VISSL: the bootstrap, the finder, the table."""
