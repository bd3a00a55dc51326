"""Classes are names: labels from any source become names, and images get indices into them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import printable, truncate

NO_CLASS = -1
"""Index of an unlabeled image, which classifiers and measures ignore."""

_WHOLE_NUMBER = re.compile(r"\+?[0-9]+")
MISSING_VALUES = frozenset({"nan", "none", "null", "na", "n/a", "<na>"})
"""Empty table cells as programs write them, in lower case. Elsewhere, these are class names."""


class NoLabels(Refused):
    """A source has no labels, or the user has to choose them."""


class Classes(NamedTuple):
    """A source's classes.

    Attributes:
        names: class names that occur, in order.
        indices: int64 ``(N,)``: an index into ``names`` for each image, or ``NO_CLASS``.
    """

    names: list[str]
    indices: NDArray[np.int64]


def class_name(label: object, missing: Container[str] = ()) -> str | None:
    """Return a class name: the label as printable text, in Unicode NFC; None if unlabeled.

    None, NaN, empty texts and negative whole numbers are not classes.

    Args:
        label: text, a number, a boolean, or None.
        missing: additional texts, in lower case, that are not classes.

    Example:
        >>> class_name(" cat "), class_name("01"), class_name(7), class_name("None")
        ('cat', '01', '7', 'None')
        >>> class_name("None", MISSING_VALUES), class_name(-1), class_name(None)
        (None, None, None)
    """
    if label is None or (isinstance(label, float) and math.isnan(label)):
        return None
    name = _normalized(label)
    if not name or name.lower() in missing or re.fullmatch("-[0-9]+", name):
        return None
    return name


def _normalized(label: object) -> str:
    return printable(unicodedata.normalize("NFC", str(label).strip()))


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort names, by value if all are whole numbers and otherwise alphabetically.

    Example:
        >>> natural_order(["10", "9"]), natural_order(["10", "9", "x"])
        (['9', '10'], ['10', '9', 'x'])
    """
    ordered = sorted(names)
    if all(map(_WHOLE_NUMBER.fullmatch, ordered)):
        ordered.sort(key=int)  # stable, so 01 stays before 1
    return ordered


def name_classes(
    labels: Iterable[Any],
    order: Sequence[str] = (),
    context: str = "labels",
    missing: Container[str] = (),
) -> Classes:
    """Convert labels to classes, and log once how many images are unlabeled, and why.

    Args:
        labels: one label per image: text, a number, a boolean, or None.
        order: class names in order, whatever these names are. Other labels follow in natural order.
        context: where the labels come from, for messages.
        missing: texts, in lower case, that are not classes: see :data:`MISSING_VALUES`.

    Raises:
        NoLabels: a label is not a single value, so images may have several.

    Example:
        >>> classes = name_classes(["10", "9", None, "10"])
        >>> classes.names, classes.indices.tolist()
        (['9', '10'], [1, 0, -1, 1])
    """
    labels = list(labels)
    try:
        counts = Counter(labels)
    except TypeError:
        several = next((label for label in labels if not isinstance(label, Hashable)), None)
        raise NoLabels(
            f"{context}: an image has the label {repr(several)[:100]}, but classification needs "
            f"one class per image."
        ) from None
    name_of_label: dict[Any, str | None] = {None: None}
    for label in counts:
        name_of_label[label] = class_name(label, missing)
    for label in counts.keys() & set(order):
        name_of_label[label] = _normalized(label) or label
    in_order = [name_of_label[label] for label in order if label in counts]
    names = list(dict.fromkeys(filter(None, in_order)))
    names += natural_order(set(filter(None, name_of_label.values())).difference(names))
    index_of_name: dict[str | None, int] = {None: NO_CLASS}
    for index, name in enumerate(names):
        index_of_name[name] = index
    indices = np.array([index_of_name[name_of_label[label]] for label in labels], np.int64)
    unlabeled: Counter[str] = Counter()
    for label, count in counts.items():
        if name_of_label[label] is None:
            unlabeled["no label" if label is None else str(label).strip() or "empty"] += count
    if unlabeled:
        texts = ", ".join(f"{text} ({count})" for text, count in unlabeled.most_common(5))
        warn_once(f"{context}: {unlabeled.total()} of {len(labels)} images are unlabeled: {texts}")
    return Classes(names, indices)


def require_class_names(names: Iterable[str], context: str) -> None:
    """Refuse numbers with fractions as class names; ``1.0`` is whole.

    Args:
        names: class names.
        context: where the labels come from, for the message.

    Example:
        >>> require_class_names(["1.5", "big"], "list.csv")
        >>> require_class_names(["1.5", "2.0"], "list.csv")
        Traceback (most recent call last):
        pirl_plugin.system.failures.Refused: The labels in list.csv are numbers, such as 1.5, ...
    """
    try:
        fractions = [name for name in names if float(name) % 1]
    except ValueError:  # a name is not a number
        return
    if fractions:
        raise Refused(
            f"The labels in {context} are numbers, such as {fractions[0]}, as for regression. "
            f"Classification needs classes: replace them, for example with low and high."
        )


def join_classes(names: Sequence[str], test: Classes, key: str) -> NDArray[np.int64]:
    """Return test classes as indices into the training class names; name classes without tests.

    Args:
        names: the training class names.
        test: the test images' classes; some training classes may be absent.
        key: what the user passed for the test images, for the message.

    Returns:
        int64 ``(N,)``, or ``NO_CLASS``.

    Raises:
        Refused: the test images have a class that no training image has.

    Example:
        >>> join_classes(["a", "b", "c"], name_classes(["c", "b"]), "DIR/val").tolist()
        [2, 1]
    """
    unknown = sorted(set(test.names).difference(names))
    if unknown:
        raise Refused(
            f"{key} has classes without training images: {truncate(unknown)}. The training images "
            f"have {truncate(names)}. Add training images for each class, or remove its test "
            f"images."
        )
    missing = [name for name in names if name not in test.names]
    if missing:
        warn_once(
            f"{key} has no images of {truncate(missing)}. If a test image is classified so, it "
            f"counts as wrong."
        )
    index_of_name = dict(zip(names, range(len(names)), strict=True))
    joined = [*map(index_of_name.__getitem__, test.names), NO_CLASS]  # the last entry is at −1
    indices: NDArray[np.int64] = np.array(joined, np.int64)[test.indices]
    return indices
