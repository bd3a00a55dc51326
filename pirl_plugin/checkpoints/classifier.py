"""A linear classifier for a layer's features, saved with the trunk that computes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from torch import Tensor
from torch.nn.functional import linear

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.system.failures import Refused

CLASSIFIER = "pirl_classifier"
"""Key for the classifier in a checkpoint."""
CLASSIFIER_FILE = "classifier.torch"
"""File with trunk and classifier, written by ``linear`` and ``finetune``."""


@dataclass(frozen=True)
class Classifier:
    """A linear classifier with a softmax.

    Attributes:
        weight: float32 ``(C, D)``.
        bias: float32 ``(C,)``.
        classes: names of the C classes.
        layer: the trunk layer that provides the features; see :func:`layer_features`.

    Raises:
        Refused: a name is not printable text.
    """

    weight: Tensor
    bias: Tensor
    classes: list[str]
    layer: str

    def __post_init__(self) -> None:
        for name in (*self.classes, self.layer):
            if not isinstance(name, str) or not name.isprintable():  # reaches terminals and tables
                raise Refused(
                    f"The classifier has the class or layer {name!r}: expected printable text."
                )

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Predict classes.

        Args:
            features: the layer's features, float ``(N, D)``, on the CPU.

        Returns:
            The most probable class, int64 ``(N,)``, an index into ``classes``, and its probability,
            float32 ``(N,)``.
        """
        scores = linear(features.float(), self.weight, self.bias)
        probability, index = scores.softmax(dim=1).max(dim=1)
        return index, probability


def read_classifier(path: Path | None) -> Classifier | None:
    """Return the classifier in a checkpoint; None if there is none.

    Args:
        path: path to a readable checkpoint; None if there is no file.

    Raises:
        Refused: the classifier is incomplete, or its class names are invalid.
    """
    if path is None:
        return None
    record = open_checkpoint(path).get(CLASSIFIER)
    if record is None:
        return None
    try:
        return Classifier(**{field.name: record[field.name] for field in fields(Classifier)})
    except (AttributeError, KeyError, TypeError) as error:  # values of other types
        raise Refused(f"{path}: the classifier in this file is damaged ({error!r}).") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None
