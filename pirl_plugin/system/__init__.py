"""System helpers: errors in one sentence, files, processes, ranks, command-line options."""
