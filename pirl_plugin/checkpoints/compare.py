"""Compare the tensors of a file with a network's tensors: names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import Tensor

COUNTER = "num_batches_tracked"
"""Unused buffer of batch norm; files of PyTorch < 0.4.1 and of Caffe2 do not have it."""


def compare(expected: Mapping[str, Tensor | tuple[int, ...]], tensors: Mapping[str, Tensor]) -> str:
    """Compare tensors by name and shape. Counters of batch norm may be missing.

    Args:
        expected: name to tensor, or to its shape.
        tensors: name to tensor.

    Returns:
        The differences in words; empty if there are none.

    Example:
        >>> import torch
        >>> net = {"conv.weight": (2,), "bn.bias": (3,)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of another shape: conv.weight (4,), expected (2,); 1 of 2 missing: bn.bias
    """
    other_shapes = []
    missing = []
    for name, value in expected.items():
        shape = tuple(value.shape) if isinstance(value, Tensor) else value
        if name in tensors and tuple(tensors[name].shape) != shape:
            other_shapes.append(f"{name} {tuple(tensors[name].shape)}, expected {shape}")
        elif name not in tensors and not name.endswith(COUNTER):
            missing.append(name)
    left_over = [name for name in tensors if name not in expected]

    total = sum(not name.endswith(COUNTER) for name in expected)
    differences = []
    if other_shapes:
        differences.append(f"{len(other_shapes)} of another shape: {truncate(other_shapes)}")
    if missing:
        differences.append(f"{len(missing)} of {total} missing: {truncate(missing)}")
    if left_over:
        differences.append(f"{len(left_over)} left over: {truncate(left_over)}")
    return "; ".join(differences)


def compare_with_model(model: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Compare weights with the host's trunk that will load them: see :func:`compare`.

    Tensors of parts that the trunk does not have, such as a classifier ``fc``, are ignored. Tensors
    of extra blocks in one of its parts count: otherwise a ResNet-34 would load into a ResNet-18.
    Position embeddings may have another size, because the host interpolates them.

    Args:
        model: the trunk's ``state_dict()``, or the part that will be loaded.
        tensors: the weights, under the same names.
    """
    parts = {_part(name) for name in model} - {None}
    relevant = {
        name: tensor
        for name, tensor in tensors.items()
        if name in model or (_part(name) in parts and not name.endswith(COUNTER))
    }
    expected: dict[str, Tensor | tuple[int, ...]] = dict(model)
    for name in expected:
        if "pos_embedding" in name and name in tensors:
            expected[name] = tensors[name]
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
