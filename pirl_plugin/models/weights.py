"""The trunk's weights in a checkpoint of the host, and whether they fit a trunk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SHOWN = 3  # names quoted of each kind of difference


class MisfitError(ValueError):
    """A checkpoint is not one, or does not fit the trunk it is to be loaded into."""


def read_trunk_weights(path: str | Path) -> dict[str, Tensor]:
    """The trunk's parameters and buffers in a checkpoint that the host wrote.

    Args:
        path: a ``.torch`` file; a trained model, or weights converted to the host's layout.

    Returns:
        Name in the trunk, such as ``_feature_blocks.conv1.weight``, to tensor.

    Raises:
        FileNotFoundError: there is no such file.
        MisfitError: it is no checkpoint of the host.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is not a file that exists; expected a checkpoint of VISSL")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except Exception as error:  # torch raises many kinds for files that are not its own
        raise MisfitError(f"{path} cannot be read as a checkpoint: {error}") from error
    found: Any = checkpoint
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        if not isinstance(found, Mapping) or key not in found:
            keys = ", ".join(map(str, list(found)[:_SHOWN])) if isinstance(found, Mapping) else ""
            raise MisfitError(
                f"{path} is no checkpoint of VISSL: it has no '{key}' (found {keys or type(found)})"
                f"; expected classy_state_dict → base_model → model → trunk"
            )
        found = found[key]
    return dict(found)


def describe_misfit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """What keeps weights from fitting a trunk, with the first differing names.

    Parameters of parts that the trunk does not have at all, such as the classifier ``fc``, do not
    count; those of further blocks in a part that it has do: ResNet-34's would fill a ResNet-18.
    BatchNorm's ``num_batches_tracked``, which nothing reads, may lack, and position embeddings may
    be of another size, which the host interpolates.

    Args:
        expected: the trunk's ``state_dict()``, or that part of it which is to be filled.
        found: the weights, under the names they would be loaded by.

    Returns:
        None where they fit.

    Example:
        >>> weight = {"layer1.conv.weight": torch.ones(2)}
        >>> describe_misfit(weight, weight)
        >>> describe_misfit(weight, {"layer1.conv.weight": torch.ones(3)})
        'layer1.conv.weight is (3,) and not (2,)'
    """
    counted = [name for name in expected if not name.endswith("num_batches_tracked")]
    missing = [name for name in counted if name not in found]
    shapes = [
        f"{name} is {tuple(found[name].shape)} and not {tuple(expected[name].shape)}"
        for name in counted
        if name in found
        and found[name].shape != expected[name].shape
        and "pos_embedding" not in name
    ]
    parts = {_part(name) for name in expected}
    surplus = [
        name
        for name in found
        if "_feature_blocks." in name
        and _part(name) in parts
        and name not in expected
        and not name.endswith("num_batches_tracked")
    ]
    said = []
    if missing:
        said.append(f"{len(missing)} of {len(counted)} parameters are missing: {_first(missing)}")
    if shapes:
        said.append(_first(shapes))
    if surplus:
        said.append(f"{len(surplus)} parameters have no place: {_first(surplus)}")
    if missing and len(missing) == len(counted):
        said.append(f"it holds {_first(list(found)) or 'nothing'}")
    return "; ".join(said) or None


def _part(name: str) -> str:
    """The block of a trunk that a parameter belongs to, ``….layer1`` of ``….layer1.0.bn1.bias``."""
    head, blocks, tail = name.rpartition("_feature_blocks.")
    return head + blocks + tail.partition(".")[0]


def _first(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
