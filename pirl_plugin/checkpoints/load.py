"""Load the trunk in any weights file, without running code in the file.

A file is flattened to tensors with dotted names. A trunk consists of the tensors with one prefix,
such as ``classy_state_dict.base_model.model.trunk._feature_blocks.`` in VISSL's layout.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from pirl_plugin.checkpoints.matching import OTHER_NETWORKS, choose_prefix, match_tensors
from pirl_plugin.checkpoints.network_record import read_network_config
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.tensors import flatten, select_prefix
from pirl_plugin.models.network_config import RESNET, network_config_of
from pirl_plugin.models.resnet import STAGES
from pirl_plugin.models.timm_trunk import TimmTrunk, layer_names
from pirl_plugin.models.trunks import AnyTrunk, adapt_filters, body_of, build_trunk
from pirl_plugin.system.failures import Refused

# lightly: an nn.Sequential of the children; 2 (ReLU) and 3 (pooling) have no tensors. Within these
# parts, all programs use torchvision's names.
_OF_LIGHTLY = {
    "0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4",
}  # fmt: skip
# A ResNet's prefix precedes one of these convolutions.
_MARK = re.compile(r"(?P<prefix>(?:.*\.)?)(?:layer[14]|[47])\.0\.conv1\.weight")


def load_trunk(
    path: str | Path | None,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    network: nn.Module | None = None,
) -> Any:
    """Load the trunk in any weights file as a module, in evaluation mode.

    Args:
        path: a file written by :func:`pirl_plugin.save_trunk`, a checkpoint from VISSL
            (pre-training, model zoo, benchmark) or torch, a safetensors file, or None for the
            weights that timm publishes for the network ``timm``.
        prefix: prefix of the trunk's tensors, or its last part, if the file holds several networks.
        timm: timm's name for the network, if it is not a ResNet and the file does not record it.
            With a tag, such as ``vit_small_patch16_224.augreg_in1k``, it also gives timm's mean and
            standard deviation for these weights.
        timm_options: keyword arguments for ``timm.create_model``.
        network: a module to load the weights into, for a network that this package cannot build.

    Returns:
        ``network``, or a module that maps normalized images ``(B, C, H, W)`` to pooled features
        ``(B, D)``. The attribute ``network_config`` records the size, mean and standard deviation
        of the images it expects.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file holds no complete trunk, safe loading refuses it, or it is a timm
            network and timm is not installed.
    """
    options = dict(timm_options or {})
    if timm is None and (options or path is None):
        subject = f"The timm options {options}" if options else "Published weights"
        raise Refused(f"{subject} need timm's name for the network, as `timm`.")
    if path is None:
        # timm downloads them, or loads them from its cache.
        return TimmTrunk(str(timm), {**options, "pretrained": True}).eval()
    path = Path(path)
    content = read_checkpoint(path)
    recorded = read_network_config(path, content)
    trunk: Any = network
    if network is not None:
        name = type(network).__name__
        state = match_tensors(network, name, flatten(content), str(path), prefix)
        network.load_state_dict(state, strict=False)  # batch norm counters may be missing
    elif timm is not None:
        trunk = find_trunk(content, timm, options, str(path), prefix)
    elif recorded.network_class:
        raise Refused(
            f"{path} holds a {recorded.network_class}, which only your own code can build. In "
            f"Python, pass one: pirl_plugin.load_trunk({str(path)!r}, network=module)."
        )
    else:
        trunk = find_trunk(content, recorded.architecture, recorded.options, str(path), prefix)
    config = network_config_of(trunk)
    if not config.architecture:
        config = recorded
    recorded = recorded.with_channels(config.channels)
    if "img_size" in options:
        recorded = recorded.with_values(config.origins["size"], size=config.size)
    trunk.network_config = config.with_values_of(recorded)
    return trunk.eval()


def find_trunk(
    content: Mapping[str, object],
    architecture: str,
    options: Mapping[str, object],
    file: str,
    prefix: str | None = None,
) -> AnyTrunk:
    """Build the network in a file's content, with the weights.

    Args:
        content: nested dictionaries with tensors.
        architecture: timm's name for the network. ResNets are recognized by their tensors, so the
            name may be ``pirl_resnet`` or empty.
        options: keyword arguments for ``timm.create_model``.
        file: file name, for errors.
        prefix: as in :func:`load_trunk`.

    Raises:
        Refused: the content has no such network, several, or an incomplete one.
    """
    tensors: Mapping[str, Tensor] = flatten(content)
    if architecture in ("", RESNET):
        tensors = _find_resnet(tensors, file, prefix)
        prefix = ""
        architecture = RESNET
        options = _resnet_options(tensors)
    with torch.device("meta"):  # a file may describe a network that is larger than the memory
        described = build_trunk(architecture, options)
    rules: dict[str, Any] = {}
    if isinstance(described, TimmTrunk):
        classifiers = layer_names(described.net, "classifier")
        channels = described.network_config.channels
        rules["convert"] = partial(_as_timm, described.net, channels)
        rules["classifiers"] = tuple(f"{layer}." for layer in classifiers)
    name = described.network_config.name
    state = match_tensors(body_of(described), name, tensors, file, prefix, **rules)
    trunk = build_trunk(architecture, options)
    body_of(trunk).load_state_dict(state, strict=False)  # batch norm counters may be missing
    return trunk


def _find_resnet(tensors: Mapping[str, Tensor], file: str, prefix: str | None) -> dict[str, Tensor]:
    """Return the tensors of the ResNet in a file, under torchvision's names.

    Raises:
        Refused: there is no ResNet, or there are several.
    """
    marks = filter(None, map(_MARK.fullmatch, tensors))
    prefixes = list(dict.fromkeys(mark["prefix"] for mark in marks))
    if not prefixes:
        raise Refused(
            f"{file} holds no ResNet: no tensor is named like layer1.0.conv1.weight. If the "
            f"network is timm's, pass timm's name for it as `timm`. {OTHER_NETWORKS}"
        )
    named = {}
    for name, tensor in select_prefix(tensors, choose_prefix(prefixes, file, prefix)).items():
        part, _, rest = name.partition(".")
        named[f"{_OF_LIGHTLY.get(part, part)}.{rest}"] = tensor
    return named


def _resnet_options(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the options of the :class:`WideResNet` with the most similar tensors."""
    usual_stem = torch.empty(64, 3, 7, 7)  # for an incomplete file, as the comparison reports
    width, channels, side, _ = state.get("conv1.weight", usual_stem).shape
    block = Bottleneck if "layer1.0.conv3.weight" in state else BasicBlock
    num_blocks = sum(name.startswith("layer") and name.endswith(".conv1.weight") for name in state)
    sizes = {depth: sum(blocks) for depth, (kind, blocks) in STAGES.items() if kind is block}
    depth = min(sizes, key=lambda depth: abs(sizes[depth] - num_blocks))
    small_stem = side == 3
    return dict(depth=depth, width=width / 64, small_stem=small_stem, in_channels=channels)


def _as_timm(net: Any, channels: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert tensors to a timm network's names and shapes, by timm's own conversion.

    The conversion knows the names in the authors' files, and resizes position embeddings. As in
    timm, a first convolution for three channels is adapted to other numbers.
    """
    converted = dict(tensors)
    module = sys.modules[type(net).__module__]
    if hasattr(module, "checkpoint_filter_fn"):
        with suppress(Exception):  # tensors of another network; the comparison will report it
            converted = dict(module.checkpoint_filter_fn(dict(tensors), net))
    for name, tensor in converted.items():
        original = tensors.get(name, tensor)
        if original.ndim == 4 and original.shape[2:] != tensor.shape[2:]:
            converted[name] = original  # patches of another size: another network
    for layer in layer_names(net, "first_conv"):
        name = f"{layer}.weight"
        if channels != 3 and name in converted and converted[name].shape[1] == 3:
            converted[name] = adapt_filters(converted[name], channels)
    return converted
