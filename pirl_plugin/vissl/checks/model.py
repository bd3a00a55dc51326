"""Run a batch's shapes through transforms, collator and model, without memory or data."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from pirl_plugin.images.names import VIEWS
from pirl_plugin.vissl.checks.configuration import uses_our_parts
from pirl_plugin.vissl.checks.refusal import refuse, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from PIL import Image
    from torch import Tensor, nn
    from vissl.config import AttrDict
    from vissl.models.base_ssl_model import BaseSSLMultiInputOutputModel

    from pirl_plugin.vissl.adapters.source import SourceImage

_IMAGES = 2  # in the batch that the model is given
_ASSUMED = (320, 480)  # height and width of a photo, where the transforms take any


def check_shapes(config: AttrDict) -> None:
    """Refuse sizes of views, features, pools and heads that do not go together.

    The model is built on PyTorch's ``meta`` device and given a batch of two images' shapes.
    Configurations without parts of this plugin are not looked at.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    if not uses_our_parts(config):
        return
    batches = []
    for split in ("TRAIN", "TEST") if config.TEST_MODEL else ("TRAIN",):
        if split == "TRAIN" and config.TEST_ONLY:
            continue
        batches.append((split, batch_of(config, split)))
    import torch

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build_on_meta(_without_files(config.MODEL), config.OPTIMIZER)
        for split, batch in batches:
            _forward(config, model, split, batch)


def batch_of(config: AttrDict, split: str) -> dict[str, Tensor | list[Tensor]]:
    """What the collator makes of ``_IMAGES`` images; their pixels mean nothing.

    Raises:
        SystemExit: a transform or the collator cannot be run.
    """
    import torch
    from PIL import Image
    from vissl.data.collators import get_collator
    from vissl.data.ssl_transforms import get_transform

    from pirl_plugin.vissl.adapters.source import SourceImage

    data = config.DATA[split]
    entries = copy.deepcopy(list(data.TRANSFORMS))
    ours = bool(entries) and entries[0].get("name") in VIEWS
    samples = []
    for row in range(_IMAGES):
        # Of an image that cannot be read, our transforms make black views of the right sizes.
        image: Image.Image | SourceImage = Image.new("RGB", _ASSUMED[::-1])
        if ours:
            image = SourceImage(torch.zeros(3, *_ASSUMED, dtype=torch.uint8), 0, 0)
        valid = 0 if ours else 1
        samples.append({"data": [image], "data_valid": [valid], "data_idx": [row], "label": [0]})
    key = f"config.DATA.{split}.TRANSFORMS"
    try:
        transform = get_transform(entries)
        made = [transform(sample) for sample in samples]
    except Exception as error:  # whatever a transform of the host raises
        refuse(f"{key} = {_named(entries)}: expected transforms that fit together; {error}", error)
    key = f"config.DATA.{split}.COLLATE_FUNCTION"
    try:
        parameters = data.get("COLLATE_FUNCTION_PARAMS") or {}
        return get_collator(data.COLLATE_FUNCTION, parameters)(made)
    except Exception as error:  # whatever a collator raises
        refuse(
            f"{key} = {shown(data.COLLATE_FUNCTION)}: expected a collator of what "
            f"{_named(entries)} makes; {error}",
            error,
        )


def _named(entries: Sequence[Mapping[str, object]]) -> str:
    return shown([entry.get("name") for entry in entries])


def _without_files(model: AttrDict) -> AttrDict:
    """A model's section whose ensemble starts at random: another check looks at its checkpoints."""
    model = copy.deepcopy(model)
    if model.TRUNK.get("PIRL_ENSEMBLE"):
        files = model.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES
        model.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = [""] * len(files)
    return model


def build_on_meta(model: AttrDict, optimizer: AttrDict) -> BaseSSLMultiInputOutputModel | None:
    """Build the host's model under ``torch.device("meta")``, which the caller has entered.

    Args:
        model: the section ``MODEL``.
        optimizer: the section ``OPTIMIZER``.

    Returns:
        It, in training mode; None for something of the host's that has no form without memory.

    Raises:
        MismatchError: a checkpoint that an ensemble reads does not fit.
        SystemExit: it cannot be built.
    """
    from vissl.models import build_model

    from pirl_plugin.checkpoints.compare import MismatchError

    try:
        return build_model(model, optimizer).train()
    except NotImplementedError:
        return None
    except MismatchError:
        raise
    except Exception as error:  # whatever a trunk or head of the host raises
        refuse(f"config.MODEL cannot be built: {type(error).__name__}: {error}", error)


def _forward(
    config: AttrDict,
    model: nn.Module | None,
    split: str,
    batch: Mapping[str, Tensor | list[Tensor]],
) -> None:
    import torch

    names = config.DATA[split].INPUT_KEY_NAMES
    missing = [name for name in names if name not in batch]
    if missing:
        refuse(
            f"config.DATA.{split}.INPUT_KEY_NAMES = {shown(list(names))}: expected names among "
            f"{', '.join(batch)}; set config.DATA.{split}.INPUT_KEY_NAMES=[{next(iter(batch))}]"
        )
    # As the host's train step takes them: lists of one, and one input without its name.
    given = {name: batch[name] for name in names}
    taken = {n: value[0] if isinstance(value, list) else value for n, value in given.items()}
    inputs = {
        name: torch.empty(value.shape, dtype=torch.float32, device="meta")
        for name, value in taken.items()
    }
    if model is None:
        return
    try:
        outputs = model(inputs if len(inputs) > 1 else next(iter(inputs.values())))
    except NotImplementedError:
        return
    except Exception as error:  # whatever a module raises at a shape it cannot take
        sizes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in inputs.items())
        refuse(
            f"config.MODEL cannot take the batches of config.DATA.{split}.TRANSFORMS ({sizes}): "
            f"expected sizes that trunk, pools and heads take; {type(error).__name__}: {error}",
            error,
        )
    if outputs is None:  # the host logs it, and fails later
        refuse(
            f"config.MODEL.HEAD.PARAMS = {shown(config.MODEL.HEAD.PARAMS)}: expected a head for "
            f"each feature of the trunk; name as many"
        )
    if split == "TRAIN" and config.LOSS.name == "pirl_loss":
        _check_outputs(config, outputs)


def _check_outputs(config: AttrDict, outputs: Sequence[Tensor | list[Tensor]]) -> None:
    """Refuse outputs that the loss cannot take: their number, and their width."""
    from pirl_plugin.losses.config import PIRLLossConfig

    section = {**config.LOSS.pirl_loss, "num_train_samples": -1}
    loss = PIRLLossConfig.from_mapping(section)
    try:
        loss.weights(len(outputs))
    except ValueError as error:
        refuse(f"config.{error}", error)
    for output in outputs:
        found = output[0] if isinstance(output, list) else output
        if found.shape[-1] != loss.embedding_dim:
            refuse(
                f"config.LOSS.pirl_loss.embedding_dim = {loss.embedding_dim}: expected the width "
                f"of the heads' output, {found.shape[-1]}; set "
                f"config.LOSS.pirl_loss.embedding_dim={found.shape[-1]}"
            )
