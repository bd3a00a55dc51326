"""The import hook that registers our parts in an unmodified VISSL."""
