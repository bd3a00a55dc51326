"""Read the trunk of any checkpoint, with size, mean and deviation of its images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from pirl_plugin.checkpoints.read import open_checkpoint, read_checkpoint, run_config
from pirl_plugin.checkpoints.trunk import (
    Trunk,
    choose_prefix,
    find_resnet,
    find_timm_network,
    flatten,
)
from pirl_plugin.checkpoints.write import PREPROCESSING
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import STAGES
from pirl_plugin.models.timm_trunk import (
    DESCRIPTION,
    TimmTrunk,
    check_description,
    read_description,
)
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused

_TIMM_FILE = "model.safetensors"  # beside config.json, as timm writes it
_RESNETS = [f"resnet{depth}" for depth in STAGES]  # timm's names of torchvision's networks
_RESNET_OPTIONS: dict[str, object] = {"in_chans": 3, "global_pool": "avg"}  # timm writes them


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


def fetch_trunk(timm: str | None, timm_options: Mapping[str, object] | None = None) -> AnyTrunk:
    """Let timm fetch a network with its published weights, or take them from its cache.

    Args:
        timm: timm's name of the network, or what else timm takes, such as ``hf-hub:OWNER/NAME``.
        timm_options: keyword arguments of ``timm.create_model``.

    Returns:
        As :func:`load_trunk`.

    Raises:
        Refused: there is no name, timm has no such network or no weights of it, or they cannot be
            fetched.
    """
    if timm is None:
        raise Refused("Published weights need the network's timm name.")
    options = dict(timm_options or {})
    try:
        network = TimmTrunk(timm, {**options, "pretrained": True})
    except Refused:
        raise
    except Exception as error:  # the hub's client raises many types, also of other libraries
        reason, _, _ = " ".join(str(error).split()).partition(". ")
        raise Refused(
            f"timm could not fetch the weights of {timm} ({type(error).__name__}: {reason}). "
            f"Connect to the Hugging Face Hub, or download the weights elsewhere and load them as "
            f"a file."
        ) from error
    preprocessing = Preprocessing.from_timm(network.net.pretrained_cfg, timm)
    network.preprocessing = preprocessing.of_timm_options(options)
    return network.eval()


def read_trunk(
    path: str | Path,
    *,
    content: Mapping[str, Any] | None = None,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    trust_pickle: bool = False,
) -> Trunk:
    """Read the trunk of any checkpoint, with the preprocessing of its images.

    Arguments and exceptions are those of :func:`load_trunk`, which builds the network too. The
    content of the file is given if it has been read.
    """
    path = Path(path)
    name = str(path)
    if timm_options and timm is None:
        raise Refused(f"timm options {timm_options} need the network's timm name.")
    if content is None:
        content = read_checkpoint(path, trust_pickle)
    preprocessing = read_preprocessing(path, content)
    tensors = dict(flatten(content))
    # The network: the user names it, or the file or the one beside it does, or it is a ResNet.
    options = dict(timm_options or {})
    timm_config = _timm_config(path) if path.name == _TIMM_FILE else None
    described_prefixes = []
    for full_name in tensors:
        if full_name.endswith(DESCRIPTION):
            described_prefixes.append(full_name.removesuffix(DESCRIPTION))
    if timm is not None:
        if preprocessing is not None:
            preprocessing = preprocessing.of_timm_options(options)
    elif timm_config:
        described = timm_config.get("model_args") or {}
        timm, options = check_description(timm_config["architecture"], described, name)
        if timm in _RESNETS and options.items() <= _RESNET_OPTIONS.items():
            timm = None
    elif described_prefixes:
        trunk_prefix = choose_prefix(described_prefixes, name, prefix)
        timm, options = read_description(tensors[trunk_prefix + DESCRIPTION], name)
        prefix = f"{trunk_prefix}net"
    if timm is None:
        trunk = find_resnet(tensors, name, prefix)
    else:
        trunk = find_timm_network(tensors, name, prefix, timm, options)
    return trunk if preprocessing is None else replace(trunk, preprocessing=preprocessing)


def read_preprocessing(
    path: Path, content: Mapping[str, Any] | None = None
) -> Preprocessing | None:
    """Return the preprocessing of a checkpoint's images, without reading its tensors.

    It is in the file, if this package has written it; or beside it, in timm's ``config.json``; or
    in the configuration of the run.

    Args:
        path: of the checkpoint.
        content: of the file, if it has been read.

    Returns:
        None if there is none, or the file is no checkpoint: its reader names this mistake.
    """
    if content is None:
        content = {}
        with suppress(ValueError):
            content = open_checkpoint(path)
    record: Any = None
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with suppress(Exception), safe_open(path, "pt") as file:
            record = json.loads((file.metadata() or {}).get(PREPROCESSING, "null"))
    else:
        # torch keeps this attribute of a state dictionary in the file.
        of_dictionary = getattr(content, "_metadata", {}).get("", {})
        record = content.get(PREPROCESSING) or of_dictionary.get(PREPROCESSING)
    if record is not None:
        size, mean, std = map(record.get, ("size", "mean", "std"))
        return Preprocessing().with_values(size, mean, std, origin="of the checkpoint")
    timm_config = _timm_config(path) if path.name == _TIMM_FILE else None
    if timm_config is not None:
        return Preprocessing.from_timm(timm_config.get("pretrained_cfg") or {}, "config.json")
    config = run_config(path, content)
    return None if config is None else Preprocessing.from_config(config)


def vissl_state(content: Mapping[str, object], path: str | Path) -> dict[str, Tensor]:
    """Return the trunk's tensors in a checkpoint, by the names of VISSL's trunks.

    In VISSL's layout, a trunk of any kind is found. In another layout, such as a state dictionary
    of torchvision, only a ResNet or a network of timm is found.

    Args:
        content: of the file.
        path: of the file.

    Raises:
        ValueError: it holds no trunk, several trunks, or an incomplete one.
    """
    inside: object = content
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        inside = inside.get(key) if isinstance(inside, Mapping) else None
    if not isinstance(inside, Mapping) or not inside:
        return read_trunk(path, content=content).vissl_state()
    # In a benchmark's checkpoint, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in inside.items()}


def _timm_config(path: Path) -> dict[str, Any] | None:
    """Return timm's ``config.json`` beside a file of weights; None if there is none."""
    file = path.with_name("config.json")
    if not file.is_file():
        return None
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise Refused(f"{file}: expected timm's description of a network; {error}") from error
    return config if isinstance(config, dict) and "architecture" in config else None
