"""Names of the parts of a data set."""


def is_train(split: str) -> bool:
    """Whether ``split``, ``train`` or ``test`` in any case, is the first.

    Raises:
        ValueError: it is neither.
    """
    if split.lower() not in ("train", "test"):
        raise ValueError(f"split = {split!r}: expected train or test; name one of them")
    return split.lower() == "train"
