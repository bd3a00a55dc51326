"""What makes several runs: the quickstart, sweeps, claims, their reports and sample images."""
