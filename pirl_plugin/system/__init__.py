"""What every part needs of its system: errors in one sentence, files, processes, ranks, options."""
