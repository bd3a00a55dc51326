"""The views of an image, as pure functions of (pixels, rng) (App. A)."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels, on a scale of 0 to 1; they need no torch."""
