"""Compare the tensors of a file with those of a network, by name, shape and, if asked, bits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COUNTER = "num_batches_tracked"
"""Buffer of batch norm that nothing reads: files of PyTorch < 0.4.1 and of Caffe2 have none."""


@dataclass(frozen=True)
class Mismatch:
    """The differences between the tensors expected and those found; false if there are none."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    expected: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.shapes or self.values)

    def __str__(self) -> str:
        kinds = {
            "of another shape": self.shapes,
            f"of {self.expected} missing": self.missing,
            "left over": self.surplus,
            "of other values": self.values,
        }
        return "; ".join(f"{len(n)} {kind}: {truncate(n)}" for kind, n in kinds.items() if n)


def compare(
    expected: Mapping[str, Tensor | tuple[int, ...]],
    found: Mapping[str, Tensor],
    *,
    values: bool = False,
) -> Mismatch:
    """Compare tensors by name and shape. Counters of batch norm may be missing.

    Args:
        expected: name to tensor, or to its shape alone.
        found: name to tensor.
        values: compare bits too, in the dtype of the tensor found; ``expected`` holds tensors.

    Example:
        >>> net = {"conv.weight": (2,), "bn.bias": (3,)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of another shape: conv.weight (4,), expected (2,); 1 of 2 missing: bn.bias
    """
    wanted = {n: tuple(t.shape) if isinstance(t, Tensor) else t for n, t in expected.items()}
    shapes = [n for n in wanted if n in found and tuple(found[n].shape) != wanted[n]]
    differ = [
        name
        for name, tensor in (expected.items() if values else ())
        if name in found
        and name not in shapes
        and isinstance(tensor, Tensor)
        and not torch.equal(found[name].cpu(), tensor.cpu().to(found[name].dtype))
    ]
    return Mismatch(
        missing=tuple(n for n in wanted if n not in found and not n.endswith(COUNTER)),
        surplus=tuple(n for n in found if n not in wanted),
        shapes=tuple(f"{n} {tuple(found[n].shape)}, expected {wanted[n]}" for n in shapes),
        values=tuple(differ),
        expected=sum(not name.endswith(COUNTER) for name in wanted),
    )


def compare_with_model(model: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Mismatch:
    """Compare weights with a trunk of the host that they are to fill.

    Tensors of parts that the trunk lacks, such as a classifier ``fc``, do not count; those of
    further blocks in one of its parts do: a ResNet-34 would fill a ResNet-18. Position embeddings
    may be of another size, for the host interpolates them.

    Args:
        model: the trunk's ``state_dict()``, or the part of it that is to be filled.
        found: the weights, under the same names.
    """
    parts = {_part(name) for name in model} - {None}
    relevant = {
        name: tensor
        for name, tensor in found.items()
        if name in model or (_part(name) in parts and not name.endswith(COUNTER))
    }
    expected: dict[str, Tensor | tuple[int, ...]] = {
        name: tuple(found[name].shape) if "pos_embedding" in name and name in found else tensor
        for name, tensor in model.items()
    }
    return compare(expected, relevant)


def truncate(names: Sequence[str], most: int = 4) -> str:
    """Join the names, or the first of them.

    >>> truncate(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _part(name: str) -> str | None:
    """Return the part of a trunk that a tensor is in: ``….layer1`` of ``….layer1.0.bn1.bias``."""
    match = re.match(r".*(?:_feature_blocks|\bnet)\.[^.]+", name)
    return match[0] if match else None
