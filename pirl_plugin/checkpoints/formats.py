"""Write a trunk in each of the formats of :mod:`pirl_plugin.checkpoints.export`."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor

from pirl_plugin.checkpoints.names import to_detectron2
from pirl_plugin.checkpoints.timm_trunk import TimmTensors
from pirl_plugin.checkpoints.trunk import Trunk
from pirl_plugin.checkpoints.vissl_layout import trunk_state, vissl_checkpoint
from pirl_plugin.files import atomic_write

# What to write -> the suffixes by which its readers know it; none for a folder.
SUFFIXES: dict[str, tuple[str, ...]] = {
    "detectron2": (".pkl",),
    "torchvision": (".pth", ".pt", ".torch"),
    "safetensors": (".safetensors",),
    "vissl": (".torch",),
    "timm": (),
}


def lines_file(out: Path, to: str) -> Path | None:
    """The text file beside ``out`` that says how to load it; None where ``out`` itself does."""
    return None if to in ("safetensors", "timm") else out.with_name(f"{out.name}.txt")


def write_file(found: Trunk | TimmTensors, out: Path, to: str, lines: str) -> None:
    """Write one file, and the lines that load it: into it for safetensors, else beside it.

    Raises:
        ValueError: the format has no such network.
    """
    beside = lines_file(out, to)
    if beside is None:
        write_safetensors(found.tensors, out, {"architecture": found.title, "loading": lines})
        return
    if to == "detectron2":
        _write_detectron2(found, out)
    else:
        tensors = vissl_checkpoint(trunk_state(found)) if to == "vissl" else _owned(found.tensors)
        with atomic_write(out) as file:
            torch.save(tensors, file)
    with atomic_write(beside) as file:
        file.write(f"# {found.title}\n\n{lines}\n".encode())


def write_safetensors(tensors: dict[str, Tensor], out: Path, metadata: dict[str, str]) -> None:
    """Write tensors by their names, with text beside them."""
    from safetensors.torch import save

    with atomic_write(out) as file:
        file.write(save(_owned(tensors), {"format": "pt", **metadata}))


def _write_detectron2(found: Trunk | TimmTensors, out: Path) -> None:
    """A pickle of arrays, as in Detectron2's model zoo; bfloat16, which numpy lacks, widens."""
    if isinstance(found, TimmTensors) or found.small_stem or found.depth == 10:
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
    with atomic_write(out) as file:
        pickle.dump(content, file, protocol=4)


def _owned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies that share no storage with tensors that are not written."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
