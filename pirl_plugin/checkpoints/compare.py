"""Whether tensors fit a network, and what keeps them from it: the one comparison of weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_PREFIX = re.compile(r"^(?:trunk\.)?(?:base_model\.)?(?:_feature_blocks\.)?")
COUNTER = "num_batches_tracked"  # of batch norm: PyTorch had none before 0.4.1, Caffe2 never


class MismatchError(ValueError):
    """Weights do not fit the trunk they are to be loaded into."""

    stops_training = True  # its text is all that the user needs


@dataclass(frozen=True)
class Mismatch:
    """The differences between the tensors that were expected and those found; false if none.

    Attributes:
        missing: names expected and not found.
        surplus: names found and not expected.
        shapes: names of another shape, with both shapes.
        values: names whose bits differ, where values were compared.
        expected: how many tensors were expected.
    """

    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    shapes: tuple[str, ...]
    values: tuple[str, ...]
    expected: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.shapes or self.values)

    def __str__(self) -> str:
        return "; ".join(
            f"{len(names)} {kind}: {truncate(names)}" for kind, names in self._kinds() if names
        )

    def summary(self) -> str:
        """As its text, with two names at most, shapes first, without what trunks' names begin with.

        Example:
            >>> names = ("trunk.base_model._feature_blocks.conv1.weight", "bn1.bias", "bn1.weight")
            >>> Mismatch(names, ("fc.bias",), (), (), expected=9).summary()
            '3 of 9 missing: conv1.weight and 2 more; 1 left over: fc.bias'
        """
        found = sorted(self._kinds(), key=lambda kind: kind[1] is not self.shapes)
        kinds = [
            (kind, [_PREFIX.sub("", name) for name in names]) for kind, names in found if names
        ]
        most = 2 if len(kinds) == 1 else 1
        return "; ".join(
            f"{len(names)} {kind}" + (f": {truncate(names, most)}" if i < 2 else "")
            for i, (kind, names) in enumerate(kinds)
        )

    def _kinds(self) -> list[tuple[str, tuple[str, ...]]]:
        return [
            (f"of {self.expected} missing", self.missing),
            ("left over", self.surplus),
            ("of another shape", self.shapes),
            ("of other values", self.values),
        ]


def compare(
    expected: Mapping[str, Tensor | tuple[int, ...]],
    found: Mapping[str, Tensor],
    *,
    values: bool = False,
) -> Mismatch:
    """Compare tensors by name and shape, and by their bits where asked.

    Batch norm's counters, which nothing reads, may be missing.

    Args:
        expected: name to tensor, or to its shape alone.
        found: name to tensor.
        values: compare bits too, in the dtype of the tensor found; ``expected`` then holds tensors.

    Example:
        >>> net = {"conv.weight": (2,), "bn.bias": (3,)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of 2 missing: bn.bias; 1 of another shape: conv.weight (4,), expected (2,)
    """
    wanted = {n: tuple(t.shape) if isinstance(t, Tensor) else t for n, t in expected.items()}
    shapes = [n for n in wanted if n in found and tuple(found[n].shape) != wanted[n]]
    differ = []
    if values:
        differ = [
            name
            for name, tensor in expected.items()
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

    Parameters of parts that the trunk does not have at all, such as the classifier ``fc``, do not
    count; those of further blocks in a part that it has do: ResNet-34's would fill a ResNet-18.
    Position embeddings may be of another size, which the host interpolates.

    Args:
        model: the trunk's ``state_dict()``, or that part of it which is to be filled.
        found: the weights, under the names they would be loaded by.
    """
    parts = {_part(name) for name in model}
    relevant = {
        name: tensor
        for name, tensor in found.items()
        if name in model
        or ((part := _part(name)) is not None and part in parts and not name.endswith(COUNTER))
    }
    expected: dict[str, Tensor | tuple[int, ...]] = {}
    for name, tensor in model.items():
        resized = "pos_embedding" in name and name in found
        expected[name] = tuple(found[name].shape) if resized else tensor
    return compare(expected, relevant)


def truncate(names: Sequence[str], most: int = 4) -> str:
    """The names, or the first of them.

    >>> truncate(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _part(name: str) -> str | None:
    """The part of a trunk that a parameter belongs to: ``….layer1`` of ``….layer1.0.bn1.bias``."""
    match = re.match(r".*(?:_feature_blocks|\bnet)\.[^.]+", name)
    return match[0] if match else None
