"""From a command to VISSL's ranks: compose, check, launch."""
