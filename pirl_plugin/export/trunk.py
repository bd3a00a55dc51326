"""Find the ResNet trunk in a checkpoint, whatever it is nested in, and prove it whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.models.resnet import STAGES, WideResNet

_NAME = re.compile(
    r"(?P<prefix>.*?)(?:conv1\.weight|bn1\.\w+|layer[1-4]\.\d+\.(?:conv|bn|downsample\.)\d\.\w+)"
)
_ENOUGH = 20  # names that make a trunk; the smallest, ResNet-10's, has 72
_COUNTER = "num_batches_tracked"  # PyTorch had none before 0.4.1, and Caffe2 never had


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
        width = "" if self.width == 1 else f" of width {self.width:g}"
        return f"ResNet-{self.depth}{width}{', 3×3 stem' if self.small_stem else ''}"

    def weights(self) -> dict[str, Tensor]:
        """All tensors but batch norms' counters: 265 of ResNet-50."""
        return {k: v for k, v in self.tensors.items() if not k.endswith(_COUNTER)}


def find_trunk(checkpoint: Mapping[str, Any], name: str, at: str | None = None) -> Trunk:
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
        names = [name for _, _, d in _dictionaries(checkpoint, "") for name in d]
        raise ValueError(
            f"{name} holds no ResNet trunk{f' at {at}' if at else ''}: expected names such as "
            f"layer1.0.conv1.weight, with or without a prefix; "
            f"{f'it has {some(names)}' if names else 'it has no tensors'}"
        )
    if len(found) > 1:
        raise ValueError(
            f"{name} holds {len(found)} trunks, at {', '.join(found)}: choose with --trunk"
        )
    ((where, (prefix, tensors)),) = found.items()
    # All that VISSL keeps under "trunk" must be the trunk's; torchvision has a classifier in it.
    keys = where.removesuffix(prefix)
    root = where[: where.rindex("trunk.") + 6] if "trunk." in where else where
    ours, ignored = {}, []
    for full, tensor in tensors.items():
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
    expected = expected_shapes(depth, width, small_stem)
    missing = [n for n in expected if n not in trunk and not n.endswith(_COUNTER)]
    extra = [n for n in trunk if n not in expected]
    shapes = [
        f"{n} {tuple(trunk[n].shape)}, expected {expected[n]}"
        for n in expected
        if n in trunk and tuple(trunk[n].shape) != expected[n]
    ]
    if missing or extra or shapes:
        problems = [("missing", missing), ("left over", extra), ("of another shape", shapes)]
        said = "; ".join(f"{len(x)} {what}: {some(x)}" for what, x in problems if x)
        raise ValueError(
            f"{name} is not a whole trunk; the nearest is ResNet-{depth} of width {width:g}, whose "
            f"{sum(not n.endswith(_COUNTER) for n in expected)} tensors do not match: {said}"
        )
    strange = [
        n for n, t in trunk.items() if t.is_floating_point() and not bool(t.isfinite().all())
    ]
    if strange:
        raise ValueError(f"{name} has values that are not finite, in {some(strange)}")
    return depth, width, small_stem


@lru_cache(maxsize=16)
def expected_shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a trunk, under torchvision's names, from torchvision's own ResNet."""
    with torch.device("meta"):
        net = WideResNet(depth, width, small_stem)
    return {n: tuple(t.shape) for n, t in net.state_dict().items() if not n.startswith("fc.")}


def _candidates(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, dict[str, Tensor]]]:
    """Each trunk there may be: keys and prefix, the prefix alone, the dictionary it is in."""
    for _, keys, tensors in _dictionaries(node, path):
        prefixes = Counter(m["prefix"] for n in tensors if (m := _NAME.fullmatch(n)))
        for prefix, count in prefixes.items():
            if count >= _ENOUGH:
                yield keys + prefix, prefix, tensors


def _dictionaries(
    node: Mapping[str, Any], path: str, seen: tuple[int, ...] = ()
) -> Iterator[tuple[int, str, dict[str, Tensor]]]:
    """Each dictionary that holds tensors, with the keys that lead to it, dotted."""
    if id(node) in seen:
        return
    tensors = {str(k): t for k, v in node.items() if (t := _tensor(v)) is not None}
    if tensors:
        yield id(node), path, tensors
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _dictionaries(value, f"{path}{key}.", (*seen, id(node)))


def _tensor(value: Any) -> Tensor | None:
    """A tensor as it is, an array as a tensor, anything else as None."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None):
        return torch.from_numpy(value)
    return value if isinstance(value, Tensor) else None


def some(names: Sequence[str], most: int = 8) -> str:
    """The names, or the first of them."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
