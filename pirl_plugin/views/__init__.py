"""The views of an image, as pure functions of (pixels, rng) (App. A)."""
