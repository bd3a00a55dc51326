"""See that views, collator, trunk, heads and loss fit together, without data."""

from __future__ import annotations

import copy
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import VIEWS
from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from vissl.config import AttrDict

_IMAGES = 2  # in the batch that the model is given
_SIZE = (320, 480)  # height and width of the image that the transforms are given


def check_fit(config: AttrDict) -> None:
    """Give a batch of two images to the transforms, the collator, the model and the loss.

    The model is built on torch's ``meta`` device, so that a trunk of any size takes no memory.

    Raises:
        ValueError: one of them cannot be built, or does not take what the one before it gives.
    """
    import torch
    from vissl.models import build_model

    from pirl_plugin.loss import PIRLLossConfig

    split = "TEST" if config.TEST_ONLY else "TRAIN"
    with _of(f"config.DATA.{split}"):
        batch = _batch(config, split)
    section = copy.deepcopy(config.MODEL)
    if "PIRL_ENSEMBLE" in section.TRUNK:  # its checkpoints are read later
        files = section.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES
        section.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = [""] * len(files)
    sizes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in batch.items())
    with (
        suppress(NotImplementedError),  # a module of the host that meta tensors cannot pass
        warnings.catch_warnings(),
        torch.random.fork_rng(devices=[]),
        torch.device("meta"),
        _of(f"config.MODEL with {sizes} of config.DATA.{split}"),
    ):
        warnings.simplefilter("ignore")
        model = build_model(section, config.OPTIMIZER).train()
        inputs = {key: x.new_empty(x.shape, device="meta").float() for key, x in batch.items()}
        outputs = model(inputs if len(inputs) > 1 else next(iter(inputs.values())))
        if config.LOSS.name == "pirl_loss":
            loss = read_section(PIRLLossConfig, config, "LOSS.pirl_loss")
            loss.weights(len(outputs))
            shapes = {tuple((o[0] if isinstance(o, list) else o).shape) for o in outputs}
            if shapes != {(_IMAGES, loss.embedding_dim)}:
                raise ValueError(
                    f"the heads give {shapes}: expected the images, {_IMAGES}, and the width "
                    f"LOSS.pirl_loss.embedding_dim = {loss.embedding_dim}"
                )


def splits_of(config: AttrDict) -> list[str]:
    """Return the splits that a run reads."""
    return ["TRAIN"] * (not config.TEST_ONLY) + ["TEST"] * bool(config.TEST_MODEL)


@contextmanager
def _of(key: str) -> Iterator[None]:
    """Name the key whose parts raise."""
    try:
        yield
    except NotImplementedError:
        raise
    except Exception as error:  # whatever a part of the host raises
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ValueError(f"{key}: expected values that fit together; {said}") from error


def _batch(config: AttrDict, split: str) -> dict[str, Tensor]:
    """Return the model's inputs as the loader makes them, of black images."""
    import torch
    from PIL import Image
    from vissl.data.collators import get_collator
    from vissl.data.ssl_transforms import get_transform

    from pirl_plugin.vissl.adapters.data import SourceImage

    data = config.DATA[split]
    transform = get_transform(copy.deepcopy(list(data.TRANSFORMS)))
    samples = []
    for row in range(_IMAGES):
        image: Any = Image.new("RGB", _SIZE[::-1])
        if data.TRANSFORMS[0]["name"] in VIEWS:
            image = SourceImage(torch.zeros(3, *_SIZE, dtype=torch.uint8), 0, 0)
        sample = {"data": [image], "data_valid": [1], "data_idx": [row], "label": [row]}
        samples.append(transform(sample))
    collate = get_collator(data.COLLATE_FUNCTION, data.get("COLLATE_FUNCTION_PARAMS") or {})
    batch = collate(samples)
    given = {name: batch[name] for name in data.INPUT_KEY_NAMES}
    return {k: v[0] if isinstance(v, list) else v for k, v in given.items()}
