"""``export_checkpoint``: a trunk from any checkpoint, as a file that others load."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.export.names import to_detectron2
from pirl_plugin.export.read import read_checkpoint
from pirl_plugin.export.trunk import Trunk, find_trunk

if TYPE_CHECKING:
    from collections.abc import Callable

# What to write -> the suffixes by which its readers know it.
SUFFIXES = {
    "detectron2": (".pkl",),
    "torchvision": (".pth", ".pt", ".torch"),
    "safetensors": (".safetensors",),
}


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    to: str,
    *,
    trunk: str | None = None,
    trust_pickle: bool = False,
) -> Trunk:
    """Write the ResNet trunk of a checkpoint for Detectron2, torchvision or timm.

    Values keep their bits. The keys and prefix of the trunk are found, not asked for; it is written
    only if it is whole. A file at ``out`` is replaced at the end, in one step.

    Args:
        path: a checkpoint of VISSL (pre-training, model zoo, benchmark) or of torch, a Detectron2
            pickle, or a safetensors file.
        out: the file to write: ``.pkl`` for Detectron2, ``.pth`` for torchvision, ``.safetensors``.
        to: ``detectron2``, ``torchvision``, or ``safetensors`` with timm's names.
        trunk: keys and prefix of the trunk to take, where the file holds several.
        trust_pickle: let the file run code if torch's safe loading refuses it.

    Returns:
        What was written, and where it was found.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown ``to`` or suffix, a file that cannot be read, or a trunk with
            tensors missing, left over, out of shape or not finite, by their names.
    """
    path, out = Path(path), Path(out)
    if to not in SUFFIXES:
        raise ValueError(f"to = '{to}': expected {', '.join(SUFFIXES)}")
    if out.suffix not in SUFFIXES[to]:
        raise ValueError(
            f"{out} does not end in {' or '.join(SUFFIXES[to])}, by which readers of {to} know it"
        )
    if out.exists() and path.exists() and out.samefile(path):
        raise ValueError(f"{out} is the checkpoint itself: give another name")
    found = find_trunk(read_checkpoint(path, trust_pickle), str(path), trunk)
    writers: dict[str, Callable[[Trunk, Path], None]] = {
        "detectron2": _write_detectron2,
        "torchvision": _write_torchvision,
        "safetensors": _write_safetensors,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        writers[to](found, unfinished)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return found


def _write_detectron2(found: Trunk, out: Path) -> None:
    """A pickle of arrays, as in Detectron2's model zoo; bfloat16, which numpy lacks, widens."""
    if found.small_stem or found.depth == 10:
        raise ValueError(
            f"Detectron2 has no {found.title}: its stem is 7×7 and its depths are 18, 34, 50, 101 "
            f"and 152; export to torchvision or safetensors"
        )
    arrays = {
        to_detectron2(name): (t.float() if t.dtype == torch.bfloat16 else t).numpy()
        for name, t in found.weights().items()
    }
    # matching_heuristics makes Detectron2 find "res5.…" in whichever module holds it.
    content = {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}
    with out.open("wb") as file:
        pickle.dump(content, file, protocol=4)


def _write_torchvision(found: Trunk, out: Path) -> None:
    """A plain state dict: ``resnet50().load_state_dict(…, strict=False)`` misses only ``fc``."""
    torch.save({name: t.clone() for name, t in found.tensors.items()}, out)


def _write_safetensors(found: Trunk, out: Path) -> None:
    """The same names, which are timm's: ``create_model("resnet50", num_classes=0)`` takes all."""
    from safetensors.torch import save

    metadata = {"format": "pt", "architecture": found.title}
    out.write_bytes(save({name: t.clone() for name, t in found.tensors.items()}, metadata))
