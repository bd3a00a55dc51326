"""From a command to the host's ranks: compose, check, launch."""
