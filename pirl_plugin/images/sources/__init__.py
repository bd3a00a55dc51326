"""Where images come from: folders, lists and annotated data sets."""
