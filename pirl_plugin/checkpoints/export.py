"""``export_checkpoint``: write the trunk of any checkpoint for other programs."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import torch

from pirl_plugin.checkpoints.load import trunk_state, vissl_checkpoint
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.trunk import Trunk, find_any_trunk, to_detectron2
from pirl_plugin.failures import Refused
from pirl_plugin.files import atomic_write
from pirl_plugin.models.timm_trunk import create_network

FORMATS = ("detectron2", "torchvision", "safetensors", "vissl", "timm")
_PRETRAIN = "pre-train another network, with +config/pirl/models=resnet18"


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    to: str,
    *,
    trunk: str | None = None,
    timm: str | None = None,
    trust_pickle: bool = False,
) -> Trunk:
    """Write the trunk of a checkpoint for Detectron2, torchvision, timm or VISSL.

    Values keep their bits. A file at ``out`` is replaced at the end, in one step.

    Args:
        path: a checkpoint of VISSL (pre-training, model zoo, benchmark) or of torch, or a
            safetensors file.
        out: the file to write: ``.pkl`` for Detectron2, ``.pth`` for torchvision, ``.torch`` for
            VISSL, ``.safetensors``; for timm a folder, which can be uploaded to a model hub.
        to: ``detectron2``, ``torchvision``, ``vissl``, ``safetensors`` with timm's names, or
            ``timm``.
        trunk: keys and prefix of the trunk, if the file holds several.
        timm: timm's name of the network, if it is timm's and the file does not have the name.
        trust_pickle: let the file run code if torch's safe loading refuses it.

    Returns:
        The trunk, and where it was found; :func:`loading_lines` returns the code that loads it.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: ``path`` is a folder.
        ValueError: ``to`` is unknown, the file cannot be read, timm or Detectron2 does not have
            the network, or tensors are missing, left over, of another shape or not finite; the
            message has their names.

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
    if to not in FORMATS:
        raise Refused(f"to = '{to}': expected one of {', '.join(FORMATS)}")
    if to == "detectron2" and out.suffix != ".pkl":
        raise Refused(f"out = {out}: expected a name that ends in .pkl, as Detectron2 does")
    if out.exists() and path.exists() and out.samefile(path):
        raise Refused(f"out = {out}: expected another file than the checkpoint itself")
    found = find_any_trunk(read_checkpoint(path, trust_pickle), str(path), trunk, timm)
    if to == "timm":
        _write_timm_folder(found, out)
    else:
        _write_file(found, out, to)
    return found


def loading_lines(found: Trunk, to: str, out: Path) -> str:
    """Return lines that load an exported file: Python code, or overrides for VISSL."""
    if to == "vissl":
        return f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={out}"
    if to == "detectron2":
        keys = {"MODEL.WEIGHTS": str(out), **detectron2_options(found)}
        return f"config.merge_from_list({[item for pair in keys.items() for item in pair]})"
    if to == "timm":
        return f'timm.create_model("local-dir:{out}", pretrained=True, num_classes=0)'
    load = f'torch.load("{out}", weights_only=True)'
    if to == "safetensors":
        load = f'safetensors.torch.load_file("{out}")'
    if found.timm:
        given = "".join(f", {key}={value!r}" for key, value in found.options.items())
        model = f'timm.create_model("{found.timm}", num_classes=0{given})'
    elif _is_usual(found):
        model = f"torchvision.models.resnet{found.depth}()\nmodel.fc = torch.nn.Identity()"
    else:  # torchvision has no constructor for it
        given = f"depth={found.depth}, width={found.width:g}, small_stem={found.small_stem}"
        model = f"pirl_plugin.WideResNet({given})"
    return f"model = {model}\nmodel.load_state_dict({load})"


def detectron2_options(found: Trunk) -> dict[str, bool | int | str | list[float]]:
    """Return keys and values that build the network, with torchvision's strides and pixels.

    Raises:
        ValueError: Detectron2 has no such network.

    Example:
        >>> detectron2_options(Trunk({}, depth=50, width=2))["MODEL.RESNETS.WIDTH_PER_GROUP"]
        128
    """
    if found.timm or found.small_stem or found.depth == 10:
        raise Refused(
            f"Detectron2 has no {found.title}: expected a ResNet-18, 34, 50, 101 or 152 with a "
            f"7×7 stem; export to torchvision or safetensors, or {_PRETRAIN}"
        )
    stem, basic = round(64 * found.width), found.depth < 50  # from 50 on, bottleneck blocks
    return {
        "MODEL.RESNETS.DEPTH": found.depth,
        "MODEL.RESNETS.STEM_OUT_CHANNELS": stem,
        "MODEL.RESNETS.RES2_OUT_CHANNELS": stem if basic else 4 * stem,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 64 if basic else stem,
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
        "MODEL.PIXEL_MEAN": [123.675, 116.28, 103.53],
        "MODEL.PIXEL_STD": [58.395, 57.12, 57.375],
    }


def _write_file(found: Trunk, out: Path, to: str) -> None:
    # Copies do not share storage with other tensors, which would be written too.
    tensors = {name: tensor.clone() for name, tensor in found.tensors.items()}
    if to == "detectron2":
        detectron2_options(found)  # refuses a network that Detectron2 does not have
        arrays = {
            to_detectron2(name): (t.float() if t.dtype == torch.bfloat16 else t).numpy()
            for name, t in found.weights().items()
        }
        # With matching_heuristics, Detectron2 finds "res5.…" in any module.
        content = {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}
        data = pickle.dumps(content, protocol=4)
    elif to == "safetensors":
        from safetensors.torch import save

        data = save(tensors, {"format": "pt"})
    with atomic_write(out) as file:
        if to in ("detectron2", "safetensors"):
            file.write(data)
        else:
            torch.save(vissl_checkpoint(trunk_state(found)) if to == "vissl" else tensors, file)


def _write_timm_folder(found: Trunk, out: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``."""
    if not found.timm and not _is_usual(found):
        raise Refused(
            f"timm has no {found.title}: expected a ResNet-18, 34, 50, 101 or 152 with a stem of "
            f"7×7 and 64 channels; export to torchvision, or {_PRETRAIN}"
        )
    net = create_network(found.timm or f"resnet{found.depth}", found.options)
    net.load_state_dict(found.tensors, strict=False)  # only batch norm's counters may be missing
    from timm.models import save_for_hf

    out.mkdir(parents=True, exist_ok=True)
    save_for_hf(net, str(out), model_args=found.options, safe_serialization=True)


def _is_usual(found: Trunk) -> bool:
    """Return whether torchvision and timm have a constructor for a ResNet."""
    return found.width == 1 and not found.small_stem and found.depth != 10


def main(arguments: list[str]) -> int:
    """Run ``pirl-plugin export --checkpoint FILE --to FORMAT --out OUT``."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin export",
        description="Write a checkpoint's trunk for another program; print the lines that load it.",
        epilog="Example: pirl-plugin export --checkpoint IN --to torchvision --out OUT.pth",
    )
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True, help="a file of this plugin, VISSL or torch")
    add("--to", choices=FORMATS, required=True, help="the format")
    add("--out", metavar="OUT", type=Path, required=True, help=".pkl, .pth, …; for timm a folder")
    add("--trunk", metavar="NAME", help="which trunk, if the file holds several")
    add("--timm", metavar="NAME", help="timm's name of the network, if the file does not have it")
    add("--trust-pickle", action="store_true", help="let the file run code if it is refused")
    options = vars(parser.parse_args(arguments))
    checkpoint, out = (options.pop(name).expanduser() for name in ("checkpoint", "out"))
    found = export_checkpoint(checkpoint, out, **options)
    where = f" at {found.found_at}" if found.found_at else ""
    print(f"{out}: {found.title}, {len(found.weights())} tensors, from {checkpoint}{where}")
    print(f"To load it:\n\n{loading_lines(found, options['to'], out)}")
    return 0
