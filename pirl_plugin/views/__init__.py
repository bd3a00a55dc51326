"""The views of an image, as pure functions of (pixels, rng) (App. A)."""

from collections.abc import Sequence

from pirl_plugin.system.failures import Refused

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels, on a scale of 0 to 1; they need no torch."""


def check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    """Check that mean and standard deviation of the channels are on a scale of 0 to 1.

    Those of levels from 0 to 255 would make all images nearly the same, in silence.

    Raises:
        ValueError: they are not, or there are not three of each.
    """
    if len(mean) != 3 or not all(0 <= level <= 1 for level in mean):
        raise Refused(
            f"mean = {mean}: expected three numbers from 0 to 1, one for each channel; divide "
            f"levels from 0 to 255 by 255"
        )
    if len(std) != 3 or not all(0 < deviation <= 1 for deviation in std):
        raise Refused(
            f"std = {std}: expected three numbers above 0, at most 1, one for each channel; divide "
            f"deviations of levels from 0 to 255 by 255"
        )
