"""Tensors by name: flatten nested dictionaries, and compare two sets of tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from pirl_plugin.system.comparison import flat
from pirl_plugin.system.text import truncate

COUNTER = "num_batches_tracked"
"""Unused batch norm buffer; files from PyTorch < 0.4.1 and Caffe2 lack it."""
# torch's wrappers insert these parts into names, also in the middle.
_WRAPPERS = re.compile(r"\b(?:_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.")


def flatten(content: Mapping[str, object]) -> dict[str, Tensor]:
    """Return all tensors and arrays in nested dictionaries, by dotted names."""
    return {
        _WRAPPERS.sub("", name): torch.as_tensor(value)
        for name, value in flat(content).items()
        if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.ndim)
    }


def compare(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Compare tensors with a network's by name and shape; batch norm counters may be missing.

    Tensors for other layers, such as a classifier, do not count. Layers within the network's parts
    whose names differ only by numbers do: otherwise a ResNet-34 would load into a ResNet-18.

    Args:
        expected: the network's tensors by name; their values are not compared.
        tensors: tensors by name.

    Returns:
        A description of the differences; empty if there are none.

    Example:
        >>> import torch
        >>> net = {"conv.weight": torch.ones(2), "bn.bias": torch.ones(3)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of another shape: conv.weight (4,), expected (2,); 1 of 2 missing: bn.bias
    """
    other_shapes = []
    missing = []
    for name, value in expected.items():
        shape = tuple(value.shape)
        if name in tensors and tuple(tensors[name].shape) != shape:
            other_shapes.append(f"{name} {tuple(tensors[name].shape)}, expected {shape}")
        elif name not in tensors and not name.endswith(COUNTER):
            missing.append(name)
    layers = set(map(_layer, expected))
    left_over = [
        name
        for name in tensors
        if name not in expected and _layer(name) in layers and not name.endswith(COUNTER)
    ]
    differences = {
        "of another shape": other_shapes,
        f"of {len(expected)} missing": missing,
        "left over": left_over,
    }
    phrases = []
    for kind, names in differences.items():
        if names:
            phrases.append(f"{len(names)} {kind}: {truncate(names)}")
    return "; ".join(phrases)


def _layer(name: str) -> str:
    """Return a tensor's layer, without numbers after the first part: ``layer1.#.bn#``."""
    first, dot, inner = (name.rpartition(".")[0] or name).partition(".")
    return first + dot + re.sub(r"\d+", "#", inner)


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors with a prefix, named without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def count_by_prefix(names: Iterable[str]) -> Counter[str]:
    """Return prefix → number of names, for the empty prefix and each that ends with a dot."""
    counts: Counter[str] = Counter()
    for name in names:
        for match in re.finditer(r"(?:^|(?<=\.))(?=.)", name):
            counts[name[: match.start()]] += 1
    return counts
