"""The views of an image: pure functions of (pixels, rng) (App. A)."""
