"""Load a trunk from any checkpoint with its preprocessing, and write it for VISSL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.checkpoints.read import map_checkpoint, read_checkpoint
from pirl_plugin.checkpoints.training_run import run_config
from pirl_plugin.checkpoints.trunk import Trunk, find_trunk
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import STAGES
from pirl_plugin.models.timm_trunk import check_description
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.files import atomic_write

_RESNETS = {f"resnet{depth}" for depth in STAGES}  # timm's names of torchvision's networks
PREPROCESSING = "preprocessing"
"""Key of the preprocessing's record in the files that this package writes."""


def read_trunk(
    path: str | Path,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    trust_pickle: bool = False,
) -> Trunk:
    """Read the trunk of any checkpoint, with the preprocessing of its images.

    Arguments and exceptions are those of :func:`load_trunk`, which builds the network too.
    """
    content = read_checkpoint(Path(path), trust_pickle)
    return trunk_in(content, Path(path), prefix=prefix, timm=timm, timm_options=timm_options)


def trunk_in(
    content: Mapping[str, object],
    path: Path,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
) -> Trunk:
    """Return the trunk of a checkpoint that has been read: see :func:`read_trunk`."""
    beside = _timm_config(path)
    if beside and timm is None:
        options = beside.get("model_args") or {}
        described, options = check_description(beside["architecture"], options, str(path))
        if described not in _RESNETS or options:
            timm = described
            timm_options = options
    trunk = find_trunk(content, str(path), prefix=prefix, timm=timm, timm_options=timm_options)
    preprocessing = read_preprocessing(path, content)
    return trunk if preprocessing is None else replace(trunk, preprocessing=preprocessing)


def load_trunk(
    path: str | Path,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    trust_pickle: bool = False,
) -> AnyTrunk:
    """Load the trunk of any checkpoint as a module, in evaluation mode.

    Args:
        path: a checkpoint of VISSL (pre-training, model zoo, benchmark) or of torch, or a
            safetensors file.
        prefix: prefix of the trunk's tensors, or its end, if the file has several trunks.
        timm: timm's name of the network, if the file does not have it.
        timm_options: keyword arguments of ``timm.create_model``, with ``timm``.
        trust_pickle: run the code in the file if torch's safe loading refuses it.

    Returns:
        A module that takes normalised images ``(B, 3, H, W)`` and names of features. Its attribute
        ``preprocessing`` has their size, mean and standard deviation.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no complete trunk, safe loading refuses it, or its network is
            timm's and timm is not installed.
    """
    trunk = read_trunk(
        path, prefix=prefix, timm=timm, timm_options=timm_options, trust_pickle=trust_pickle
    )
    return trunk.build()


def read_preprocessing(path: Path, content: Mapping[str, object]) -> Preprocessing | None:
    """Return the preprocessing of a checkpoint's images.

    It is in the file, if this package has exported it; or else in the configuration of the run.

    Args:
        path: the checkpoint.
        content: what :func:`~pirl_plugin.checkpoints.read.read_checkpoint` returned.

    Returns:
        The preprocessing; None if neither has it.
    """
    record: Any = content.get(PREPROCESSING)
    if record is None:  # torch keeps this attribute of a state dictionary in the file
        record = getattr(content, "_metadata", {}).get("", {}).get(PREPROCESSING)
    if record is None and path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            record = json.loads((file.metadata() or {}).get(PREPROCESSING, "null"))
    if record is not None:
        return Preprocessing.from_record(record, "of the checkpoint")
    if beside := _timm_config(path):
        return Preprocessing.from_timm(beside.get("pretrained_cfg") or {}, "config.json")
    config = run_config(path)
    return None if config is None else Preprocessing.from_config(config)


@lru_cache(maxsize=8)
def preprocessing_of_file(path: Path) -> Preprocessing | None:
    """Return the preprocessing of a checkpoint's images without reading its tensors.

    Returns:
        None if the file has none, or is no checkpoint; whoever reads its weights names the mistake.
    """
    content: Mapping[str, object] = {}
    if path.suffix != ".safetensors":
        with suppress(Exception):  # a damaged file can raise anything
            content = map_checkpoint(path)
    return read_preprocessing(path, content)


def save_trunk(trunk: AnyTrunk, path: str | Path) -> None:
    """Write a trunk as a checkpoint that the host's benchmarks take as ``PARAMS_FILE``."""
    with atomic_write(path) as file:
        torch.save(vissl_checkpoint(trunk.state_dict(), trunk.preprocessing), file)


def vissl_checkpoint(
    trunk: Mapping[str, Tensor], preprocessing: Preprocessing | None = None
) -> dict[str, object]:
    """Return a checkpoint that VISSL takes as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``.

    Args:
        trunk: tensors by the trunk's own names, from :meth:`Trunk.vissl_state`.
        preprocessing: of the trunk's images.
    """
    model = {"trunk": dict(trunk), "heads": {}}
    checkpoint: dict[str, object] = {
        "type": "consolidated",
        "classy_state_dict": {"base_model": {"model": model}},
    }
    if preprocessing is not None and preprocessing.is_known:
        checkpoint[PREPROCESSING] = preprocessing.record()
    return checkpoint


def vissl_trunk_state(checkpoint: Mapping[str, object], name: str) -> dict[str, Tensor]:
    """Return the trunk's tensors in a checkpoint, by the names of VISSL's trunks.

    In VISSL's layout, a trunk of any kind is found. In another layout, such as a state dictionary
    of torchvision, only a ResNet or a network of timm is found.

    Raises:
        ValueError: it holds no trunk, several trunks, or an incomplete one.
    """
    inside: object = checkpoint
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    if not isinstance(inside, Mapping) or not inside:
        return find_trunk(checkpoint, name).vissl_state()
    # In a benchmark's checkpoint, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in inside.items()}


def _timm_config(path: Path) -> dict[str, Any]:
    """Return ``config.json`` beside timm's ``model.safetensors``; nothing for other files."""
    file = path.with_name("config.json")
    if path.name != "model.safetensors" or not file.is_file():
        return {}
    config = json.loads(file.read_text())
    return config if isinstance(config, dict) and "architecture" in config else {}
