"""What the host's benchmark suite lacks: kNN, the quickstart and its report."""
