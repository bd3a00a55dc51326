"""From an image file to a batch: decoder, sources of images, data set, collate function."""
