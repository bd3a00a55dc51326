"""From image files to batches: decoder, image sources, data set, collate function."""
