"""``export_checkpoint``: a trunk from any checkpoint, as a file or folder that others load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pirl_plugin.arguments import why_not_writable
from pirl_plugin.checkpoints.formats import SUFFIXES, lines_file, write_file
from pirl_plugin.checkpoints.loading_lines import loading_lines
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.timm_folder import write_timm_folder
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, find_any_trunk
from pirl_plugin.checkpoints.trunk import Trunk


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    to: str,
    *,
    trunk: str | None = None,
    trust_pickle: bool = False,
    results: Sequence[str | Path] = (),
) -> Trunk | TimmTensors:
    """Write the trunk of a checkpoint for Detectron2, torchvision, timm or VISSL.

    Values keep their bits. The keys and prefix of the trunk are found, not asked for; it is written
    only if it is whole. A file at ``out`` is replaced at the end, in one step.

    Args:
        path: a checkpoint of VISSL (pre-training, model zoo, benchmark) or of torch, a Detectron2
            pickle, or a safetensors file.
        out: the file to write: ``.pkl`` for Detectron2, ``.pth`` for torchvision, ``.torch`` for
            VISSL, ``.safetensors``; for timm a folder.
        to: ``detectron2``, ``torchvision``, ``vissl``, ``safetensors`` with timm's names, or
            ``timm``.
        trunk: keys and prefix of the trunk to take, where the file holds several.
        trust_pickle: let the file run code if torch's safe loading refuses it.
        results: JSON files of measurements for timm's model card, beside those that are found:
            ``results.json`` of ``pirl-plugin knn``, ``detection`` or ``results``.

    Returns:
        What was written, and where it was found;
        :func:`~pirl_plugin.checkpoints.loading_lines.loading_lines` says how to load it.

    Raises:
        FileNotFoundError: no such file.
        IsADirectoryError: a folder.
        ValueError: an unknown ``to`` or suffix, a file that cannot be read, a folder that cannot be
            written to, ``results`` of another checkpoint, a network that timm or Detectron2 does
            not have, a text of another's where its own would go, or a trunk with tensors missing,
            left over, out of shape or not finite, by their names.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from torchvision.models import resnet18
        >>> folder = tempfile.TemporaryDirectory()
        >>> torch.save(resnet18().state_dict(), f"{folder.name}/in.pth")
        >>> trunk = export_checkpoint(f"{folder.name}/in.pth", f"{folder.name}/out.torch", "vissl")
        >>> trunk.title
        'ResNet-18'
        >>> folder.cleanup()
    """
    path, out = Path(path), Path(out)
    if to not in SUFFIXES:
        raise ValueError(f"to = '{to}': expected one of {', '.join(SUFFIXES)}")
    if SUFFIXES[to] and out.suffix not in SUFFIXES[to]:
        raise ValueError(
            f"OUT = {out}: expected a name that ends in {' or '.join(SUFFIXES[to])}, by which "
            f"readers of {to} know it"
        )
    if results and to != "timm":
        raise ValueError(
            f"results = {', '.join(map(str, results))}: expected none with to = '{to}', which has "
            f"no model card; leave them out, or write for timm"
        )
    if out.exists() and path.exists() and out.samefile(path):
        raise ValueError(f"OUT = {out}: expected another file than the checkpoint itself")
    if reason := why_not_writable(out.parent):
        raise ValueError(f"OUT = {out}: expected a folder to write to, and {reason}")
    beside = lines_file(out, to)
    if beside is not None and beside.exists() and not out.exists():  # no export has written it
        raise ValueError(
            f"OUT = {out}: expected no {beside}, into which the lines that load it go; move that "
            f"file, or give another name"
        )
    found = find_any_trunk(read_checkpoint(path, trust_pickle), str(path), trunk)
    lines = loading_lines(found, to, out)
    if to == "timm":
        write_timm_folder(found, out, lines, path, [Path(file) for file in results])
    else:
        write_file(found, out, to, lines)
    return found
