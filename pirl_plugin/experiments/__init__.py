"""What runs several runs: the quickstart, sweeps, reports, sample images."""
