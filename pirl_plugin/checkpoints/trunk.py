"""Find the trunk in a checkpoint of any layout, and check that it is complete."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from pirl_plugin.checkpoints.compare import COUNTER, compare, truncate
from pirl_plugin.failures import Refused
from pirl_plugin.models.resnet import STAGES, WideResNet
from pirl_plugin.models.timm_trunk import DESCRIPTION, create_network, read_description

_NAME = re.compile(
    r"(?P<prefix>.*?)(?:conv1\.weight|bn1\.\w+|layer[1-4]\.\d+\.(?:conv|bn|downsample\.)\d\.\w+)"
)
_ENOUGH = 20  # a trunk has at least this many names; the smallest, ResNet-10, has 72
# If a file has several trunks, the first of these places is taken. The papers of MoCo and DINO
# evaluate these trunks, and not the key encoder or the student.
_PREFERRED = ("classy_state_dict.base_model.model.trunk", "encoder_q", "teacher")
# Children of torchvision's ResNet in an nn.Sequential, as in lightly: 2 and 3 have no tensors.
_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_CHILD = re.compile(r"(.*?)\b([014567])\.((?:\d+\.(?:conv|bn|downsample\.)\d\.)?\w+)")
# torchvision's names → Detectron2's. There, a batch norm is part of a convolution.
_DETECTRON2 = {
    r"^conv1\.": "stem.conv1.",
    r"^bn1\.": "stem.conv1.norm.",
    **{rf"^layer{i}\.": f"res{i + 1}." for i in range(1, 5)},
    r"\.bn(\d)\.": r".conv\1.norm.",
    r"\.downsample\.0\.": ".shortcut.",
    r"\.downsample\.1\.": ".shortcut.norm.",
}
_Place = tuple[str, str, dict[str, Tensor]]  # keys and prefix; only the prefix; tensors by name


@dataclass(frozen=True)
class Trunk:
    """A complete trunk: a ResNet, or a network of timm.

    Attributes:
        tensors: by torchvision's or timm's names, without a classifier; contiguous, on the CPU.
        found_at: keys and prefix of its place in the checkpoint.
        depth: of a ResNet, as ``width`` and ``small_stem``: see :class:`pirl_plugin.WideResNet`.
        timm: timm's name of the network; empty for a ResNet.
        options: keyword arguments of ``timm.create_model``.
    """

    tensors: dict[str, Tensor] = field(repr=False)
    found_at: str = ""
    depth: int = 50
    width: float = 1
    small_stem: bool = False
    timm: str = ""
    options: dict[str, object] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """A title, such as ``ResNet-10 of width 0.5`` or ``timm's vit_tiny (img_size=48)``."""
        if self.timm:
            given = ", ".join(f"{key}={value}" for key, value in self.options.items())
            return f"timm's {self.timm}{f' ({given})' if given else ''}"
        scaled = "" if self.width == 1 else f" of width {self.width:g}"
        return f"ResNet-{self.depth}{scaled}{', 3×3 stem' if self.small_stem else ''}"

    def weights(self) -> dict[str, Tensor]:
        """Return all tensors except batch norm's counters: 265 for ResNet-50."""
        return {n: t for n, t in self.tensors.items() if not n.endswith(COUNTER)}


def find_any_trunk(
    checkpoint: Mapping[str, object], name: str, at: str | None = None, timm: str | None = None
) -> Trunk:
    """Find the trunk of a checkpoint: a ResNet, or the network of timm that the file describes.

    Args:
        checkpoint: nested dictionaries; arrays count as tensors.
        name: name of the checkpoint in errors.
        at: keys and prefix of the trunk, or their end, if the file has several.
        timm: timm's name of the network, if the file does not have it.

    Raises:
        ValueError: there is no trunk, several trunks, an incomplete one, or values that are not
            finite; or the network is timm's, and timm is not installed.
    """
    options: dict[str, object] = {}
    if timm is None:
        places = _places(checkpoint, DESCRIPTION, at)
        if not places:
            return find_trunk(checkpoint, name, at)
        where, prefix, tensors = _one(places, name)
        timm, options = read_description(tensors[prefix + DESCRIPTION])
        at = f"{where}net"
    with torch.device("meta"):
        expected = create_network(timm, options).state_dict()
    first = next(iter(expected))
    places = _places(checkpoint, first, at)
    if not places:
        raise Refused(f"{name} holds no {timm}: expected a tensor {first}")
    where, prefix, tensors = _one(places, name)
    ours = {n: tensors[prefix + n] for n in expected if prefix + n in tensors}
    if mismatch := compare(expected, ours):
        raise Refused(f"{name} is not timm's {timm}: {mismatch}; give its own name")
    _list_others(name, [n for n in tensors if n.removeprefix(prefix) not in ours])
    return Trunk(_finite(ours, name), where, timm=timm, options=options)


def find_trunk(checkpoint: Mapping[str, object], name: str, at: str | None = None) -> Trunk:
    """Find the ResNet trunk of a checkpoint: see :func:`find_any_trunk`."""
    everywhere = list(_resnets(checkpoint))
    places = [place for place in everywhere if at is None or _is_at(place[0], at)]
    if everywhere and not places:
        where = ", ".join(place[0] for place in everywhere)
        raise Refused(f"{name} holds no trunk at {at}: expected one of {where}")
    if not places:
        raise Refused(
            f"{name} holds no ResNet trunk: expected names such as layer1.0.conv1.weight, with or "
            f"without a prefix"
        )
    where, prefix, tensors = _one(places, name)
    part = re.compile(rf"{re.escape(prefix)}(?:conv1|bn1|layer[1-4])\.")
    ours = {n.removeprefix(prefix): t for n, t in tensors.items() if part.match(n)}
    depth = min(STAGES, key=lambda d: len(_shapes(d, 1, False).keys() ^ ours.keys()))
    stem = ours.get("conv1.weight", torch.empty(64, 3, 7, 7))
    width, small_stem = stem.shape[0] / 64, tuple(stem.shape[2:]) == (3, 3)
    expected = _shapes(depth, width, small_stem)
    if mismatch := compare(expected, ours):
        raise Refused(
            f"{name}{f' at {where}' if where else ''} is not a whole trunk; it differs from the "
            f"nearest, ResNet-{depth} of width {width:g}: {mismatch}"
        )
    whole = _finite({n: ours[n] for n in expected if n in ours}, name)
    _list_others(name, [n for n in tensors if not part.match(n)])
    return Trunk(whole, where, depth, width, small_stem)


def _list_others(name: str, others: list[str]) -> None:
    if others := [other for other in others if not other.endswith(DESCRIPTION)]:
        logging.root.warning(f"{name}: not part of the trunk: {truncate(others)}")


def to_detectron2(name: str) -> str:
    """Return Detectron2's name of a tensor of torchvision's ResNet.

    >>> to_detectron2("layer1.0.bn2.running_var")
    'res2.0.conv2.norm.running_var'
    """
    for theirs, detectron2 in _DETECTRON2.items():
        name = re.sub(theirs, detectron2, name)
    return name


def _dictionaries(
    node: Mapping[str, object], path: str = ""
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield each dictionary with tensors or arrays: its dotted keys, and the tensors."""
    tensors = {
        str(key): torch.as_tensor(value)
        for key, value in node.items()
        if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.ndim)
    }
    if tensors:
        yield path, tensors
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _dictionaries(value, f"{path}{key}.")


def _places(checkpoint: Mapping[str, object], last: str, at: str | None) -> list[_Place]:
    """Return each place with a tensor named ``last``, with or without a prefix."""
    return [
        (keys + prefix, prefix, tensors)
        for keys, tensors in _dictionaries(checkpoint)
        for prefix in (full.removesuffix(last) for full in tensors if full.endswith(last))
        if prefix[-1:] in ("", ".") and (at is None or _is_at(keys + prefix, at))
    ]


def _resnets(checkpoint: Mapping[str, object]) -> Iterator[_Place]:
    """Yield each place that may be a ResNet, with its tensors by torchvision's names."""
    for keys, tensors in _dictionaries(checkpoint):
        for rename in (str, _name_of_child):
            named = {rename(name): tensor for name, tensor in tensors.items()}
            prefixes = Counter(m["prefix"] for n in named if (m := _NAME.fullmatch(n)))
            enough = [prefix for prefix, count in prefixes.items() if count >= _ENOUGH]
            yield from ((keys + prefix, prefix, named) for prefix in enough)
            if enough:
                break


def _name_of_child(name: str) -> str:
    match = _CHILD.fullmatch(name)
    return f"{match[1]}{_CHILDREN[match[2]]}.{match[3]}" if match else name


@lru_cache(maxsize=16)
def _shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a trunk, in the network's order."""
    with torch.device("meta"):
        net = WideResNet(depth, width, small_stem)
    return {n: tuple(t.shape) for n, t in net.state_dict().items()}


def _is_at(where: str, at: str) -> bool:
    where, at = where.strip("."), at.strip(".")
    return where == at or where.endswith(f".{at}")


def _one(places: list[_Place], name: str) -> _Place:
    """Return the place of the trunk.

    Raises:
        ValueError: there are several places, and none is preferred.
    """
    if len(places) == 1:
        return places[0]
    where = ", ".join(place[0] for place in places)
    for part in _PREFERRED:
        preferred = [place for place in places if part in place[0]]
        if len(preferred) == 1:
            logging.root.info(f"{name} holds trunks at {where}: took {preferred[0][0]}")
            return preferred[0]
    raise Refused(f"{name} holds {len(places)} trunks, at {where}: expected one; give --trunk NAME")


def _finite(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    strange = [n for n, t in tensors.items() if not bool(t.isfinite().all())]
    if strange:
        raise Refused(f"{name} has values that are not finite, in {truncate(strange)}")
    return {n: tensor.detach().contiguous() for n, tensor in tensors.items()}
