"""The three sweeps of Sec. 4: what is varied, over which values, and by which override."""

from __future__ import annotations

from dataclasses import dataclass

SCALES = {
    "paper": "the analysis settings of Sec. 4: ResNet-50, 400 epochs of ImageNet, 32 GPUs",
    "quick": "minutes on a CPU: ResNet-10, 64-px images",
}
NUM_ORDERS = 362_880  # 9!
_POWERS_OF_TEN = (10, 100, 1_000, 10_000)


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
        symbol: of the swept value.
        axis: its name on the figure.
        key: the Hydra key that sets it.
        values: method → its values.
        limits: method → the least and the largest value it can take.
        published_at: the value of Sec. 4's models elsewhere, whose result Table 5 prints; None
            where it is not stated.
        whole: whether a value is a whole number; then the figure's axis is logarithmic.
    """

    symbol: str
    axis: str
    key: str
    values: dict[str, tuple[float, ...]]
    limits: dict[str, tuple[float, float]]
    published_at: float | None
    whole: bool = True


SWEEPS = {
    "lambda": Sweep(
        symbol="λ",
        axis="Weight λ of the invariance term",  # Eq. 5
        key="config.LOSS.pirl_loss.lambda_invariance",
        values={"PIRL": (0, 0.25, 0.5, 0.75, 1)},
        limits={"PIRL": (0, 1)},
        published_at=0.5,
        whole=False,
    ),
    "permutations": Sweep(
        symbol="|T|",
        axis="Number of permutations |T|",
        # "++" because an entry of TRANSFORMS need not name it.
        key="++config.DATA.TRAIN.TRANSFORMS.0.num_permutations",
        values={"PIRL": (1, *_POWERS_OF_TEN, NUM_ORDERS), "Jigsaw": _POWERS_OF_TEN},
        # The jigsaw's classifier has |T| outputs: with one there is nothing to learn.
        limits={"PIRL": (1, NUM_ORDERS), "Jigsaw": (2, max(_POWERS_OF_TEN))},
        published_at=None,
    ),
    "negatives": Sweep(
        symbol="N",
        axis="Number of negatives N",
        key="config.LOSS.pirl_loss.num_negatives",
        values={"PIRL": tuple(2**power for power in range(6, 16))},
        limits={"PIRL": (1, float("inf"))},
        published_at=4096,
    ),
}


def points(name: str, chosen: list[str] | None) -> list[tuple[str, float]]:
    """(method, value) of each model of a sweep, in order.

    Args:
        name: of the sweep.
        chosen: the values to take, as typed; None for all of the paper's.

    Raises:
        ValueError: a value that is no number, or that no method can take.

    Example:
        >>> points("permutations", ["1", "10"])
        [('PIRL', 1), ('PIRL', 10), ('Jigsaw', 10)]
    """
    sweep = SWEEPS[name]
    if chosen is None:
        return [(method, value) for method, values in sweep.values.items() for value in values]
    values = sorted({_read(text, sweep) for text in chosen})
    return [
        (method, value)
        for method, (least, largest) in sweep.limits.items()
        for value in values
        if least <= value <= largest
    ]


def _read(text: str, sweep: Sweep) -> float:
    least = min(low for low, _ in sweep.limits.values())
    largest = max(high for _, high in sweep.limits.values())
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= largest or (sweep.whole and not value.is_integer()):
        kind = "a whole number" if sweep.whole else "a number"
        reach = f"of at least {least}" if largest == float("inf") else f"from {least} to {largest}"
        raise ValueError(f"--values has '{text}' for {sweep.symbol}; expected {kind} {reach}")
    return int(value) if value.is_integer() else value
