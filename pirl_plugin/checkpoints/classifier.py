"""A linear classifier for a layer's features, saved with the trunk that computes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import linear

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.models.preprocessing import center_crop, scale_and_shift
from pirl_plugin.models.resnet import LAST
from pirl_plugin.models.trunks import AnyTrunk, layer_features
from pirl_plugin.system.failures import Refused, check_name

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
    record = read_checkpoint(path, mapped=True).get(CLASSIFIER)
    if record is None:
        return None
    try:
        return Classifier(**record)
    except Exception as error:  # values of other types can raise anything
        raise Refused(f"{path}: the classifier in this file is damaged ({error!r}).") from None


class ImageNetwork(nn.Module):
    """Map images to class probabilities, or without a classifier to features.

    It crops and normalizes the images as ``embed`` does, so the results are equal.

    Args:
        trunk: the network.
        classifier: the classifier for the trunk's features; None returns pooled features.

    Attributes:
        classes: names of the C classes.
        network_config: the images that the network expects, at any size.
    """

    _constants: Tensor

    def __init__(self, trunk: AnyTrunk, classifier: Classifier | None) -> None:
        super().__init__()
        self.trunk = trunk
        self.network_config = config = trunk.network_config
        self.classes: list[str] = []
        self._layer = LAST
        constants = scale_and_shift(config.mean, config.std, config.pixel_type.white)
        self.register_buffer("_constants", constants)
        self.head: nn.Module | None = None
        if classifier is not None:
            self.classes = classifier.classes
            self._layer = classifier.layer
            self.head = nn.Linear(*classifier.weight.T.shape)
            self.head.load_state_dict({"weight": classifier.weight, "bias": classifier.bias})

    def forward(self, images: Tensor) -> Tensor:
        """Compute probabilities.

        Args:
            images: ``(B, C, H, W)`` in the dtype of the training images, usually uint8.

        Returns:
            float32 ``(B, classes)``, with a sum of 1 for each image; or ``(B, D)`` features.

        Raises:
            ValueError: the images have a different dtype.
        """
        dtype = str(images.dtype).removeprefix("torch.")
        check_name("the images' dtype", dtype, [self.network_config.dtype])
        scale, shift = self._constants
        inputs = center_crop(images, self.network_config.size).float() * scale + shift
        (features,) = layer_features(self.trunk, inputs, [self._layer])
        return features if self.head is None else self.head(features).softmax(dim=1)


def load_classifier(path: str | Path) -> ImageNetwork:
    """Load a classifier from ``pirl-plugin linear`` or ``finetune``, in evaluation mode.

    Args:
        path: the file, such as ``classifier.torch``.

    Returns:
        A module that maps images ``(B, C, H, W)`` of any size, in the dtype of the training images
        (usually uint8), to probabilities ``(B, classes)``. The attribute ``classes`` has the names.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no classifier, or safe loading refuses it.
    """
    path = Path(path)
    trunk = load_trunk(path)
    classifier = read_classifier(path)
    if classifier is None:
        raise Refused(f"{path} holds no classifier. pirl-plugin linear and finetune write one.")
    return ImageNetwork(trunk, classifier).eval()
