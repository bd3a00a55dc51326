"""Load the trunk in any weights file, without running code in the file.

A file is flattened to tensors with dotted names. A trunk consists of the tensors with one prefix,
such as ``classy_state_dict.base_model.model.trunk._feature_blocks.`` in VISSL's layout.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from pirl_plugin.checkpoints.read import open_checkpoint, read_checkpoint, section_of
from pirl_plugin.checkpoints.tensors import compare, count_by_prefix, flatten, select_prefix
from pirl_plugin.method.settings import unpack_state
from pirl_plugin.models.network_config import RESNET, NetworkConfig, network_config_of
from pirl_plugin.models.resnet import STAGES, ResNetTrunk
from pirl_plugin.models.timm_trunk import TimmTrunk, check_description
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.text import truncate

Module = TypeVar("Module", bound=nn.Module)

NETWORK = "network"
"""Key for the network's record in this plugin's data."""
TIMM_FILE = "model.safetensors"  # beside config.json, as timm writes it

# What programs call a ResNet's parts: their name -> torchvision's. Within a part, all of them use
# torchvision's names.
_OF_TORCHVISION = {name: name for name in ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")}
# lightly: an nn.Sequential of the children; 2 (ReLU) and 3 (pooling) have no tensors.
_OF_LIGHTLY = {
    "0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4",
}  # fmt: skip
# A ResNet's prefix precedes one of these convolutions.
_MARK = re.compile(r"(?P<prefix>(?:.*\.)?)(?P<part>layer[14]|[47])\.0\.conv1\.weight")
# If a file holds several trunks, use the first of these, as the papers do for evaluation.
_PREFERRED = (
    "classy_state_dict.base_model.model.trunk.",  # VISSL: not the momentum encoder in its loss
    "encoder_q.",  # MoCo: not the key encoder
    "teacher.",  # DINO: not the student
    "state_dict_ema.",  # timm: the averaged weights, as timm itself does
)
# Programs that use other tensor names, by parts of these names.
_WRITERS = {
    r"(^|\.)features\.\d+\.\d+\.|encoder_layer_\d": "torchvision",
    r"(^|\.)embeddings\.|encoder\.layers?\.\d+\.(attention|layer)|encoder\.stages\.": (
        "Hugging Face transformers"
    ),
    r"(^|\.)res2\.0\.conv1\.": "Detectron2",
    r"transformer\.resblocks\.": "OpenCLIP",
}


@overload
def load_trunk(
    path: str | Path | None,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
) -> AnyTrunk: ...
@overload
def load_trunk(path: str | Path, *, prefix: str | None = None, network: Module) -> Module: ...
def load_trunk(
    path: str | Path | None,
    *,
    prefix: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    network: nn.Module | None = None,
) -> nn.Module:
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
    if timm is None:
        timm = recorded.architecture
        options = dict(recorded.options)
        if recorded.network_class and network is None:
            raise Refused(
                f"{path} holds a {recorded.network_class}, which only your own code can "
                f"build. In Python, pass one: pirl_plugin.load_trunk({str(path)!r}, "
                f"network=module)."
            )
    trunk: Any = network
    if trunk is None:
        trunk = find_trunk(content, timm, options, str(path), prefix)
    else:
        name = type(trunk).__name__
        state = _find_fitting(trunk, name, dict(flatten(content)), str(path), prefix)
        trunk.load_state_dict(state, strict=False)  # batch norm counters may be missing
    config = network_config_of(trunk)
    if not config.architecture:
        config = recorded
    if "size" in recorded.origins and "img_size" not in (timm_options or {}):
        config = config.with_values(recorded.origins["size"], size=recorded.size)
    if recorded.channels == config.channels:
        config = config.with_images_of(recorded)
    trunk.network_config = config
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
    tensors = dict(flatten(content))
    if architecture in ("", RESNET):
        return _load_resnet(tensors, file, prefix)
    return _load_timm_network(tensors, file, prefix, architecture, options)


def read_network_config(path: Path, content: Mapping[str, Any] | None = None) -> NetworkConfig:
    """Return a file's record of the network, without reading the tensors.

    The record is in the file, if this package wrote it, or in timm's ``config.json`` beside it.

    Args:
        path: the file.
        content: the file's content, if it has been read.

    Returns:
        The record, or the defaults if there is none or the file is unreadable.

    Raises:
        Refused: the record is damaged, or its description of the network is unsafe.
    """
    record: dict[str, Any] | None
    recorded_in = path
    origin = "file"
    timm_config = path.with_name("config.json")
    try:
        if path.name == TIMM_FILE and timm_config.is_file():
            recorded_in = timm_config
            origin = timm_config.name
            record = _read_timm_record(timm_config)
        else:
            content = _opened(path) if content is None else content
            record = section_of(content).get(NETWORK) or _images_of_state(content)
        if record is None:
            return NetworkConfig()
        architecture = record["architecture"]
        options = record["options"]
        if architecture not in ("", RESNET):
            architecture, options = check_description(architecture, options)
        names = (
            "size",
            "dtype",
            "nodata",
            "channel_names",
            "statistics",
            "mean",
            "std",
            "low",
            "high",
        )
        values = {name: record.get(name) for name in names}
        config = NetworkConfig(architecture, options, network_class=record.get("class", ""))
        return config.with_values(origin, **values)
    except Refused as error:
        raise Refused(f"{recorded_in}: {error}") from error
    except Exception as error:  # a damaged record can raise anything
        raise Refused(f"{recorded_in}: the network record is damaged ({error!r}).") from error


def _images_of_state(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the record of the images in the state of a :class:`pirl_plugin.PIRL`, if any.

    Lightning and accelerate save this state.
    """
    for name, tensor in flatten(content):
        if name.endswith("_extra_state"):
            with suppress(Refused):  # another program's, or an average
                images: dict[str, Any] | None = unpack_state(tensor).get("images")
                if images:
                    return images
    return None


def _read_timm_record(file: Path) -> dict[str, Any] | None:
    """Read timm's ``config.json``, and return a record with this package's keys.

    Other programs, such as transformers, write files with this name too; for them, return None.
    """
    content = json.loads(file.read_text())
    if "pretrained_cfg" not in content:
        return None
    images = content["pretrained_cfg"]
    size = (images.get("input_size") or [None])[-1]  # (C, H, W)
    options = content.get("model_args") or {}
    return {**content, **images, "options": options, "size": size}


def _opened(path: Path) -> Mapping[str, Any]:
    """Open a checkpoint; return an empty mapping if it is invalid, which a later read reports."""
    try:
        return open_checkpoint(path)
    except ValueError:
        return {}


def _load_resnet(tensors: Mapping[str, Tensor], file: str, prefix: str | None) -> ResNetTrunk:
    """Find the ResNet among a file's tensors, and load it.

    Raises:
        Refused: there is no ResNet, there are several, or it is incomplete.
    """
    part_names_at: dict[str, dict[str, str]] = {}  # ResNet prefix → names of its parts
    for full_name in tensors:
        if mark := _MARK.fullmatch(full_name):
            is_lightly = mark["part"].isdecimal()
            part_names_at[mark["prefix"]] = _OF_LIGHTLY if is_lightly else _OF_TORCHVISION
    if not part_names_at:
        raise Refused(
            f"{file} holds no ResNet: no tensor is named like layer1.0.conv1.weight. "
            f"{_advice(tensors, 'For another network, pass its name in timm as `timm`.')}"
        )
    trunk_prefix = _choose_prefix(list(part_names_at), file, prefix)
    part_names = part_names_at[trunk_prefix]
    state = {}  # by torchvision's names
    ignored = []
    for name, tensor in select_prefix(tensors, trunk_prefix).items():
        part, _, rest = name.partition(".")
        if part in part_names:
            state[f"{part_names[part]}.{rest}"] = tensor
        else:
            ignored.append(name)

    usual_stem = torch.empty(64, 3, 7, 7)  # for an incomplete file, as the comparison reports
    width, channels, side, _ = state.get("conv1.weight", usual_stem).shape
    build = partial(ResNetTrunk, _most_similar_depth(state), width / 64, side == 3, channels)
    with torch.device("meta"):  # a file may describe a network that is larger than the memory
        described = build()
    remedy = "If it is another network, pass its name in timm as `timm`."
    name = described.network_config.name
    _check_complete(described.body, name, state, ignored, file, remedy)
    trunk = build()
    trunk.body.load_state_dict(state, strict=False)  # batch norm counters may be missing
    return trunk


def _most_similar_depth(names: Collection[str]) -> int:
    """Return the depth of the ResNet with the same kind, and about the same number, of blocks."""
    block = Bottleneck if "layer1.0.conv3.weight" in names else BasicBlock
    blocks = {tuple(name.split(".")[:2]) for name in names if name.startswith("layer")}
    depths = [depth for depth, (kind, _) in STAGES.items() if kind is block]
    return min(depths, key=lambda depth: abs(sum(STAGES[depth][1]) - len(blocks)))


def _load_timm_network(
    tensors: Mapping[str, Tensor],
    file: str,
    prefix: str | None,
    timm: str,
    options: Mapping[str, object],
) -> TimmTrunk:
    """Build a timm network, and load its weights, converted to timm's names.

    Raises:
        Refused: there is no such network, there are several, or it is incomplete; or timm is not
            installed.
    """
    build = partial(TimmTrunk, timm, options)
    with torch.device("meta"):
        described = build()
    name = described.network_config.name
    convert = partial(_as_timm, described.net)
    state = _find_fitting(described.net, name, tensors, file, prefix, convert)
    trunk = build()
    trunk.net.load_state_dict(state, strict=False)
    return trunk


def _find_fitting(
    network: nn.Module,
    name: str,
    tensors: Mapping[str, Tensor],
    file: str,
    prefix: str | None,
    convert: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = dict,
) -> Mapping[str, Tensor]:
    """Find the tensors that fit a network, and check that they are complete and finite.

    Args:
        network: the network.
        name: the network's name, for messages.
        tensors: a file's tensors.
        file: file name, for messages.
        prefix: as in :func:`load_trunk`.
        convert: converts tensors to the network's names and shapes.

    Raises:
        Refused: no such tensors exist, or there are several sets, or they are incomplete.
    """
    expected = network.state_dict()
    converted = {}  # prefix → tensors under timm's names, and names of the others
    num_fitting = {}  # prefix → number of tensors that fit
    for candidate, count in count_by_prefix(tensors).items():
        if 2 * count >= len(expected):
            state, ignored = _split(network, convert(select_prefix(tensors, candidate)))
            converted[candidate] = state, ignored
            num_fitting[candidate] = sum(
                name in expected and tensor.shape == expected[name].shape
                for name, tensor in state.items()
            )
    most = max(num_fitting.values(), default=0)
    if 2 * most < len(expected):  # the file holds another network
        advice = "It is another network: check its name and options."
        raise Refused(
            f"{file} does not hold {name}: most of its {len(expected)} tensors, such as "
            f"{next(iter(expected))}, are missing. {_advice(tensors, advice)}"
        )
    best_fitting = [candidate for candidate, number in num_fitting.items() if number == most]
    trunk_prefix = _choose_prefix(best_fitting, file, prefix)
    state, ignored = converted[trunk_prefix]
    for key, tensor in select_prefix(tensors, trunk_prefix).items():
        if key in state and state[key].shape != tensor.shape:
            warn(
                f"{file}: timm resized {key} from {tuple(tensor.shape)} to "
                f"{tuple(state[key].shape)}"
            )
    remedy = "Check the network's name and options, such as img_size=384."
    _check_complete(network, name, state, ignored, file, remedy)
    return state


def _as_timm(net: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert tensors to a timm network's names and shapes, by timm's own conversion.

    The conversion knows the names in the authors' files, resizes position embeddings, and adapts
    the first convolution to other numbers of channels.
    """
    from timm.models import adapt_input_conv

    expected = net.state_dict()
    converted = dict(tensors)
    convert = getattr(sys.modules[type(net).__module__], "checkpoint_filter_fn", None)
    if convert is not None:
        try:
            converted = dict(convert(dict(tensors), net))
        except Exception:  # these are not the network's tensors, as the comparison will report
            logging.root.debug("timm's conversion failed", exc_info=True)
    first_convs = _names(net.pretrained_cfg.get("first_conv"))
    first_weights = [f"{name}.weight" for name in first_convs]
    for name, tensor in converted.items():
        original = tensors.get(name, tensor)
        if original.ndim == 4 and original.shape[2:] != tensor.shape[2:]:
            tensor = original  # patches of another size: another network
        if name in first_weights and name in expected and tensor.ndim == 4:
            channels = expected[name].shape[1]
            if channels != tensor.shape[1]:
                tensor = adapt_input_conv(channels, tensor)
        converted[name] = tensor
    return converted


def _split(
    network: nn.Module, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return a network's tensors, with left-over ones in its parts, and the names of all others."""
    expected = network.state_dict()
    parts = set(map(_part, expected))
    timms = getattr(network, "pretrained_cfg", None) or {}
    classifiers = tuple(f"{name}." for name in _names(timms.get("classifier")))
    state = {}
    rest = []
    for name, tensor in tensors.items():
        is_other = _part(name) not in parts or name.startswith(classifiers)
        if name not in expected and is_other:
            rest.append(name)
        else:
            state[name] = tensor
    return state, rest


def _names(names: str | Sequence[str] | None) -> list[str]:
    """Return timm's layer names: one, several or none."""
    return [names] if isinstance(names, str) else list(names or ())


def _advice(tensors: Mapping[str, Tensor], otherwise: str) -> str:
    """Name the program that a network comes from, if its tensor names show it."""
    for pattern, writer in _WRITERS.items():
        named = next(filter(re.compile(pattern).search, tensors), None)
        if named is not None:
            return (
                f"The tensor names, such as {named}, come from {writer}. Build the network there, "
                f"and pass it to extract_features."
            )
    return otherwise


def _part(name: str) -> str:
    """Return the first part of a tensor's name."""
    return name.partition(".")[0]


def _check_complete(
    network: nn.Module,
    name: str,
    state: Mapping[str, Tensor],
    ignored: Iterable[str],
    file: str,
    remedy: str,
) -> None:
    """Check that a network's tensors are complete and finite.

    Args:
        network: the network.
        name: the network's name, for messages.
        state: tensors, under the network's names.
        ignored: names of other tensors, such as a classifier's; a warning names their parts.
        file: file name, for messages.
        remedy: what to do about a mismatch, as a sentence.

    Raises:
        Refused: tensors are missing, left over or of another shape, or values are not finite.
    """
    mismatch = compare(network.state_dict(), state)
    if mismatch:
        raise Refused(f"{file} does not match {name}: {mismatch}. {remedy}")
    not_finite = [key for key, tensor in state.items() if not bool(tensor.isfinite().all())]
    if not_finite:
        raise Refused(f"{file} has NaN or infinite values in {truncate(not_finite)}.")
    if parts := sorted(set(map(_part, ignored))):
        warn(f"{file}: ignored {truncate(parts)}")


def _choose_prefix(prefixes: Sequence[str], name: str, user_prefix: str | None) -> str:
    """Choose the trunk's prefix.

    Raises:
        ValueError: none matches the user's, or there are several and none is preferred.
    """
    ending = ""
    if user_prefix is not None:
        ending = f".{user_prefix.strip('.')}."
        exact = ending.lstrip(".")
        if exact in prefixes:
            return exact
    matching = [prefix for prefix in prefixes if f".{prefix}".endswith(ending)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(prefix.removesuffix(".") or "'' (the top)" for prefix in prefixes)
    if not matching:
        raise Refused(f"{name} holds no network at {user_prefix}. There are networks at {listed}.")
    for part in _PREFERRED:
        preferred = [prefix for prefix in matching if part in prefix]
        if len(preferred) == 1:
            warn(f"{name} holds networks at {listed}; using {preferred[0]}")
            return preferred[0]
    raise Refused(f"{name} holds {len(matching)} networks, at {listed}. Choose one as `prefix`.")
