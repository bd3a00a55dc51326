"""The quickstart and the sweep: several runs of the host, their reports, and sample images."""
