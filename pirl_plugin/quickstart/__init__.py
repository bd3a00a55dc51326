"""The quickstart and the sweep: several runs through the host, their reports, sample images."""
