"""Find the trunk in a checkpoint, whatever it is nested in, and check that it is whole."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torchvision.models.resnet import Bottleneck

from pirl_plugin.checkpoints.compare import COUNTER, compare, truncate
from pirl_plugin.models.resnet import STAGES, WideResNet
from pirl_plugin.models.timm_trunk import DESCRIPTION, create_network, read_description

_NAME = re.compile(
    r"(?P<prefix>.*?)(?:conv1\.weight|bn1\.\w+|layer[1-4]\.\d+\.(?:conv|bn|downsample\.)\d\.\w+)"
)
_ENOUGH = 20  # names that make a trunk; the smallest, ResNet-10's, has 72
# Where a file has several trunks, the first of these places that it has. MoCo's key encoder and
# DINO's student, which are beside these, are not what the methods' papers evaluate.
_PREFERRED = ("classy_state_dict.base_model.model.trunk", "encoder_q", "teacher")
# Children of torchvision's ResNet in an nn.Sequential, as in lightly: 2 and 3 have no tensors.
_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_CHILD = re.compile(r"(.*?)\b([014567])\.((?:\d+\.(?:conv|bn|downsample\.)\d\.)?\w+)")
# A piece of torchvision's name and of Detectron2's, where a batch norm is part of a convolution.
_STEMS = {"conv1": "stem.conv1", "bn1": "stem.conv1.norm"}
_PARTS = {f"conv{i}": f"conv{i}" for i in (1, 2, 3)} | {
    f"bn{i}": f"conv{i}.norm" for i in (1, 2, 3)
}
_PARTS |= {"downsample.0": "shortcut", "downsample.1": "shortcut.norm"}


@dataclass(frozen=True)
class _Found:
    """A whole trunk.

    Attributes:
        tensors: by the network's own names; contiguous, on the CPU.
        found_at: keys and prefix that it was found under.
        ignored: names of the tensors beside it, such as a classifier's.
    """

    tensors: dict[str, Tensor]
    found_at: str = ""
    ignored: tuple[str, ...] = ()

    def weights(self) -> dict[str, Tensor]:
        """Return all tensors but batch norm's counters: 265 of ResNet-50."""
        return {n: t for n, t in self.tensors.items() if not n.endswith(COUNTER)}


@dataclass(frozen=True)
class Trunk(_Found):
    """A ResNet, by torchvision's names without ``fc``; depth, width and stem as of WideResNet."""

    depth: int = 50
    width: float = 1
    small_stem: bool = False

    @property
    def title(self) -> str:
        """Such as ``ResNet-10 of width 0.5, 3×3 stem``."""
        scaled = "" if self.width == 1 else f" of width {self.width:g}"
        return f"ResNet-{self.depth}{scaled}{', 3×3 stem' if self.small_stem else ''}"


@dataclass(frozen=True)
class TimmTensors(_Found):
    """A network of timm, by timm's names without the classifier."""

    architecture: str = ""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Such as ``timm's vit_tiny_patch16_224 (img_size=48)``."""
        given = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"timm's {self.architecture}{f' ({given})' if given else ''}"


def find_any_trunk(
    checkpoint: Mapping[str, object], name: str, at: str | None = None, timm: str | None = None
) -> Trunk | TimmTensors:
    """Find the trunk of a checkpoint: a ResNet, or the network of timm that the file describes.

    Networks of timm that are torchvision's ResNets by another name count as ResNets.

    Args:
        checkpoint: nested dictionaries; arrays count as tensors.
        name: what errors call the checkpoint.
        at: keys and prefix of the trunk, or their end, where the file has several.
        timm: timm's name of the network, where the file does not describe it.

    Raises:
        ValueError: no trunk, several, one that is not whole, or values that are not finite.
    """
    if timm is not None:
        return _find_timm(checkpoint, name, timm, at)
    places = {
        keys + full.removesuffix(DESCRIPTION): (full, tensors)
        for keys, tensors in dictionaries(checkpoint)
        for full in tensors
        if full.endswith(DESCRIPTION)
    }
    if at is not None:
        places = {where: found for where, found in places.items() if _is_at(where, at)}
    if not places:
        return find_trunk(checkpoint, name, at)
    where = _one(list(places), name)
    full, tensors = places[where]
    architecture, options = read_description(tensors[full])
    if re.fullmatch(r"resnet(18|34|50|101|152)", architecture) and not options:
        return find_trunk(checkpoint, name, f"{where}net.")
    inside = f"{full.removesuffix(DESCRIPTION)}net."
    ours = {n.removeprefix(inside): t for n, t in tensors.items() if n.startswith(inside)}
    ignored = tuple(n for n in tensors if not n.startswith(inside) and n != full)
    return TimmTensors(_finite(ours, name), where, ignored, architecture, options)


def find_trunk(checkpoint: Mapping[str, object], name: str, at: str | None = None) -> Trunk:
    """Find the ResNet trunk of a checkpoint: as :func:`find_any_trunk`."""
    found = {
        where: (prefix, tensors)
        for where, prefix, tensors in _candidates(checkpoint)
        if at is None or _is_at(where, at)
    }
    if not found:
        names = [name for _, d in dictionaries(checkpoint) for name in d]
        raise ValueError(
            f"{name} holds no ResNet trunk{f' at {at}' if at else ''}: expected names such as "
            f"layer1.0.conv1.weight, with or without a prefix; "
            f"{f'it has {truncate(names)}' if names else 'it has no tensors'}"
        )
    where = _one(list(found), name)
    prefix, tensors = found[where]
    part = re.compile(rf"{re.escape(prefix)}(?:conv1|bn1|layer[1-4])\.")
    ours = {n.removeprefix(prefix): t for n, t in tensors.items() if part.match(n)}
    depth = min(STAGES, key=lambda d: len(_shapes(d, 1, False).keys() ^ ours.keys()))
    stem = ours.get("conv1.weight", torch.empty(64, 3, 7, 7))
    width, small_stem = stem.shape[0] / 64, tuple(stem.shape[2:]) == (3, 3)
    order = _shapes(depth, width, small_stem)
    if mismatch := compare(order, ours):
        raise ValueError(
            f"{name}{f' at {where}' if where else ''} is not a whole trunk; the nearest is "
            f"ResNet-{depth} of width {width:g}, from which it differs: {mismatch}"
        )
    ignored = tuple(n for n in tensors if not part.match(n) and not n.endswith(DESCRIPTION))
    if ignored:
        logging.root.info(f"{name}: not part of the trunk: {truncate(ignored)}")
    whole = _finite({n: ours[n] for n in order if n in ours}, name)
    return Trunk(whole, where, ignored, depth, width, small_stem)


def is_bottleneck(depth: int) -> bool:
    """Return whether the blocks are bottlenecks, whose output is four times as wide."""
    return STAGES[depth][0] is Bottleneck


def to_detectron2(name: str) -> str:
    """Return Detectron2's name of a tensor of torchvision's ResNet.

    >>> to_detectron2("layer1.0.bn2.running_var")
    'res2.0.conv2.norm.running_var'

    Raises:
        KeyError: not a name of torchvision's ResNet.
    """
    part, _, leaf = name.rpartition(".")
    if match := re.fullmatch(r"layer([1-4])\.(\d+)\.(.+)", part):
        return f"res{int(match[1]) + 1}.{match[2]}.{_PARTS[match[3]]}.{leaf}"
    return f"{_STEMS[part]}.{leaf}"


def to_torchvision(name: str) -> str:
    """Return torchvision's name of a tensor of Detectron2's ResNet; other names as they are.

    >>> to_torchvision("res5.0.shortcut.norm.weight")
    'layer4.0.downsample.1.weight'
    """
    part, _, leaf = name.rpartition(".")
    stems, parts = ({v: k for k, v in table.items()} for table in (_STEMS, _PARTS))
    if part in stems:
        return f"{stems[part]}.{leaf}"
    match = re.fullmatch(r"res([2-5])\.(\d+)\.(.+)", part)
    if match and match[3] in parts:
        return f"layer{int(match[1]) - 1}.{match[2]}.{parts[match[3]]}.{leaf}"
    return name


def dictionaries(
    node: Mapping[str, object], path: str = "", seen: tuple[int, ...] = ()
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield each dictionary that holds tensors: the keys to it, dotted, and its tensors."""
    if id(node) in seen:
        return
    tensors = {str(k): t for k, v in node.items() if (t := _tensor(v)) is not None}
    if tensors:
        yield path, tensors
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from dictionaries(value, f"{path}{key}.", (*seen, id(node)))


def _candidates(
    checkpoint: Mapping[str, object],
) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
    """Yield each possible ResNet: keys and prefix, the prefix alone, tensors by usual names."""
    for keys, tensors in dictionaries(checkpoint):
        for rename in (str, _name_of_child, to_torchvision):
            named = {rename(name): tensor for name, tensor in tensors.items()}
            prefixes = Counter(m["prefix"] for n in named if (m := _NAME.fullmatch(n)))
            enough = [prefix for prefix, count in prefixes.items() if count >= _ENOUGH]
            for prefix in enough:
                yield keys + prefix, prefix, named
            if enough:
                break


def _name_of_child(name: str) -> str:
    match = _CHILD.fullmatch(name)
    return f"{match[1]}{_CHILDREN[match[2]]}.{match[3]}" if match else name


def _find_timm(
    checkpoint: Mapping[str, object], name: str, architecture: str, at: str | None
) -> TimmTensors:
    """Find the tensors of a named network of timm, under any prefix."""
    with torch.device("meta"):
        expected = create_network(architecture, {}).state_dict()
    first = next(iter(expected))
    found = {}
    for keys, tensors in dictionaries(checkpoint):
        for full in tensors:
            prefix = full.removesuffix(first)
            if full.endswith(first) and (not prefix or prefix[-1] == "."):
                if at is None or _is_at(keys + prefix, at):
                    found[keys + prefix] = prefix, tensors
    if not found:
        raise ValueError(
            f"{name} holds no {architecture}{f' at {at}' if at else ''}: expected a tensor "
            f"{first}, with or without a prefix; give the name of the network that it is of"
        )
    where = _one(list(found), name)
    prefix, tensors = found[where]
    ours = {n: tensors[prefix + n] for n in expected if prefix + n in tensors}
    if mismatch := compare(expected, ours):
        raise ValueError(f"{name} is not timm's {architecture}: {mismatch}; give its own name")
    ignored = tuple(n for n in tensors if n.removeprefix(prefix) not in ours)
    return TimmTensors(_finite(ours, name), where, ignored, architecture)


@lru_cache(maxsize=16)
def _shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a trunk, in the network's order."""
    with torch.device("meta"):
        net = WideResNet(depth, width, small_stem)
    return {n: tuple(t.shape) for n, t in net.state_dict().items() if not n.startswith("fc.")}


def _is_at(where: str, at: str) -> bool:
    where, at = where.strip("."), at.strip(".")
    return where == at or where.endswith(f".{at}")


def _one(places: list[str], name: str) -> str:
    """Return the place to take.

    Raises:
        ValueError: there are several, and none is preferred.
    """
    for part in _PREFERRED:
        preferred = [where for where in places if part in where]
        if len(places) > 1 and len(preferred) == 1:
            logging.root.info(f"{name} holds trunks at {', '.join(places)}: took {preferred[0]}")
            return preferred[0]
    if len(places) > 1:
        raise ValueError(
            f"{name} holds {len(places)} trunks, at {', '.join(places)}: expected one; give "
            f"--trunk NAME"
        )
    return places[0]


def _finite(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    strange = [n for n, t in tensors.items() if not bool(t.isfinite().all())]
    if strange:
        raise ValueError(f"{name} has values that are not finite, in {truncate(strange)}")
    return {n: tensor.detach().contiguous() for n, tensor in tensors.items()}


def _tensor(value: Any) -> Tensor | None:
    """Return a tensor as it is, an array as a tensor, and None for anything else."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None):
        return torch.from_numpy(value)
    return value if isinstance(value, Tensor) else None
