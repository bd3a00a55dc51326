"""Find the ResNet trunk in a checkpoint, whatever it is nested in, and check that it is whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.checkpoints.compare import COUNTER, compare, truncate
from pirl_plugin.checkpoints.shapes import expected_shapes
from pirl_plugin.models.resnet import STAGES
from pirl_plugin.models.timm_trunk import DESCRIPTION

_NAME = re.compile(
    r"(?P<prefix>.*?)(?:conv1\.weight|bn1\.\w+|layer[1-4]\.\d+\.(?:conv|bn|downsample\.)\d\.\w+)"
)
_ENOUGH = 20  # names that make a trunk; the smallest, ResNet-10's, has 72

CHOOSE = "take one out: pirl-plugin export IN OUT.torch --to vissl --trunk NAME"
"""What to do about a file of several trunks."""


@dataclass(frozen=True)
class Trunk:
    """A whole ResNet trunk.

    Attributes:
        tensors: by torchvision's names, without ``fc``; contiguous, on the CPU.
        depth: 10, 18, 34, 50, 101 or 152.
        width: channels of each stage over torchvision's; 2 is PIRL-c2x.
        small_stem: whether conv1 is 3×3, without max-pooling after it.
        found_at: keys and prefix it was found under.
        ignored: names of tensors beside it, such as a classifier's.
    """

    tensors: dict[str, Tensor]
    depth: int
    width: float
    small_stem: bool
    found_at: str
    ignored: tuple[str, ...]

    @property
    def title(self) -> str:
        """Such as ``ResNet-50`` or ``ResNet-50 of width 2``."""
        return resnet_title(self.depth, self.width, self.small_stem)

    def weights(self) -> dict[str, Tensor]:
        """All tensors but batch norms' counters: 265 of ResNet-50."""
        return {k: v for k, v in self.tensors.items() if not k.endswith(COUNTER)}


def resnet_title(depth: int, width: float, small_stem: bool) -> str:
    """A ResNet in words.

    Example:
        >>> resnet_title(50, 1, False), resnet_title(10, 0.5, True)
        ('ResNet-50', 'ResNet-10 of width 0.5, 3×3 stem')
    """
    scaled = "" if width == 1 else f" of width {width:g}"
    return f"ResNet-{depth}{scaled}{', 3×3 stem' if small_stem else ''}"


def find_trunk(checkpoint: Mapping[str, object], name: str, at: str | None = None) -> Trunk:
    """The trunk of a checkpoint, with no tensor missing, left over or out of shape.

    Args:
        checkpoint: nested dictionaries; arrays count as tensors.
        name: what errors call the checkpoint.
        at: keys and prefix of the trunk to take where there are several.

    Raises:
        ValueError: no trunk, several, one that is not whole, or values that are not finite.
    """
    found = {
        where: (prefix, tensors)
        for where, prefix, tensors in _candidates(checkpoint, "")
        if at is None or where.strip(".") == at.strip(".")
    }
    if not found:
        names = [name for _, d in dictionaries(checkpoint) for name in d]
        raise ValueError(
            f"{name} holds no ResNet trunk{f' at {at}' if at else ''}: expected names such as "
            f"layer1.0.conv1.weight, with or without a prefix; "
            f"{f'it has {truncate(names)}' if names else 'it has no tensors'}"
        )
    if len(found) > 1:
        raise ValueError(f"{name} holds {len(found)} trunks, at {', '.join(found)}: {CHOOSE}")
    ((where, (prefix, tensors)),) = found.items()
    # All that VISSL keeps under "trunk" must be the trunk's; torchvision has a classifier in it.
    keys = where.removesuffix(prefix)
    root = where[: where.rindex("trunk.") + 6] if "trunk." in where else where
    ours, ignored = {}, []
    for full, tensor in tensors.items():
        if full.endswith(DESCRIPTION):
            continue
        if not (keys + full).startswith(root) or full.startswith(f"{prefix}fc."):
            ignored.append(full)
        else:
            ours[full.removeprefix(prefix)] = tensor
    depth, width, small_stem = _check(ours, f"{name} at '{where}'" if where else name)
    order = expected_shapes(depth, width, small_stem)
    whole = {n: ours[n].detach().contiguous() for n in order if n in ours}
    return Trunk(whole, depth, width, small_stem, where, tuple(ignored))


def _check(trunk: dict[str, Tensor], name: str) -> tuple[int, float, bool]:
    """Depth, width and kind of stem; raises ValueError unless each tensor is in its place."""
    depth = min(STAGES, key=lambda d: len(expected_shapes(d, 1, False).keys() ^ trunk.keys()))
    narrow = {n: shape[0] for n, shape in expected_shapes(depth, 1, False).items() if shape}
    widths = Counter(t.shape[0] / narrow[n] for n, t in trunk.items() if n in narrow and t.ndim)
    width = widths.most_common(1)[0][0] if widths else 1
    stem = trunk.get("conv1.weight")
    small_stem = stem is not None and tuple(stem.shape[2:]) == (3, 3)
    mismatch = compare(expected_shapes(depth, width, small_stem), trunk)
    if mismatch:
        raise ValueError(
            f"{name} is not a whole trunk; the nearest is ResNet-{depth} of width {width:g}, from "
            f"which it differs: {mismatch}"
        )
    strange = [
        n for n, t in trunk.items() if t.is_floating_point() and not bool(t.isfinite().all())
    ]
    if strange:
        raise ValueError(f"{name} has values that are not finite, in {truncate(strange)}")
    return depth, width, small_stem


def _candidates(
    node: Mapping[str, object], path: str
) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
    """Each trunk there may be: keys and prefix, the prefix alone, the dictionary it is in."""
    for keys, tensors in dictionaries(node, path):
        prefixes = Counter(m["prefix"] for n in tensors if (m := _NAME.fullmatch(n)))
        for prefix, count in prefixes.items():
            if count >= _ENOUGH:
                yield keys + prefix, prefix, tensors


def dictionaries(
    node: Mapping[str, object], path: str = "", seen: tuple[int, ...] = ()
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Each dictionary that holds tensors: the keys that lead to it, dotted, and its tensors."""
    if id(node) in seen:
        return
    tensors = {str(k): t for k, v in node.items() if (t := _tensor(v)) is not None}
    if tensors:
        yield path, tensors
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from dictionaries(value, f"{path}{key}.", (*seen, id(node)))


def _tensor(value: Any) -> Tensor | None:
    """A tensor as it is, an array as a tensor, anything else as None."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None):
        return torch.from_numpy(value)
    return value if isinstance(value, Tensor) else None
