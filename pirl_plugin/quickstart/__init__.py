"""The quickstart and sweeps: several runs through the host, their reports and sample images."""
