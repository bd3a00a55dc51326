"""``export_checkpoint``: write the trunk of any checkpoint for other programs."""

from __future__ import annotations

import argparse
import json
import pickle
import shlex
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.checkpoints.load import PREPROCESSING, read_trunk, vissl_checkpoint
from pirl_plugin.checkpoints.trunk import Trunk, to_detectron2
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.timm_trunk import create_network
from pirl_plugin.system import arguments as kinds
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write
from pirl_plugin.system.host_config import quoted

FORMATS = ("detectron2", "torchvision", "safetensors", "vissl", "timm")
_PRETRAIN = "pre-train another network, with +config/pirl/models=resnet18"


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    to: str,
    *,
    trunk: str | None = None,
    timm: str | None = None,
    timm_options: Mapping[str, object] | None = None,
    trust_pickle: bool = False,
) -> Trunk:
    """Write the trunk of a checkpoint for Detectron2, torchvision, timm or VISSL.

    Values keep their bits. Size, mean and standard deviation of the trunk's images are written too.
    A file at ``out`` is replaced at the end, in one step.

    Args:
        path: a checkpoint of VISSL (pre-training, model zoo, benchmark) or of torch, or a
            safetensors file.
        out: the file to write: ``.pkl`` for Detectron2, ``.pth`` for torchvision, ``.torch`` for
            VISSL, ``.safetensors``; for timm a folder, which can be uploaded to a model hub.
        to: ``detectron2``, ``torchvision``, ``vissl``, ``safetensors`` with timm's names, or
            ``timm``.
        trunk: prefix of the trunk's tensors, or its end, if the file holds several trunks.
        timm: timm's name of the network, if it is timm's and the file does not have the name.
        timm_options: keyword arguments of ``timm.create_model``, with ``timm``.
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
    path = Path(path)
    out = Path(out)
    # Refuse before the checkpoint is read, which may take minutes.
    if to not in FORMATS:
        raise Refused(f"to = '{to}': expected one of {', '.join(FORMATS)}")
    if to == "detectron2" and out.suffix != ".pkl":
        raise Refused(f"out = {out}: expected a name that ends in .pkl, as Detectron2 does")
    if out.exists() and path.exists() and out.samefile(path):
        raise Refused(f"out = {out}: expected another file than the checkpoint itself")
    exported = read_trunk(
        path, prefix=trunk, timm=timm, timm_options=timm_options, trust_pickle=trust_pickle
    )
    if to == "timm":
        write_timm_folder(exported, out)
    elif to == "detectron2":
        _write_detectron2(exported, out)
    elif to == "vissl":
        state = _unshared(exported.vissl_state())
        with atomic_write(out) as file:
            torch.save(vissl_checkpoint(state, exported.preprocessing), file)
    elif to == "safetensors":
        _write_safetensors(exported, out)
    else:
        write_state_dict(exported.tensors, exported.preprocessing, out)
    return exported


def loading_lines(trunk: Trunk, to: str, out: Path) -> str:
    """Return what loads an exported file: Python code, or overrides of VISSL in a shell."""
    images = trunk.preprocessing
    mean = list(images.mean)
    std = list(images.std)
    if to == "vissl":
        overrides = [
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(out.absolute())}",
            f"config.DATA.MEAN={mean}",
            f"config.DATA.STD={std}",
        ]
        return shlex.join(overrides)
    if to == "detectron2":
        keys_and_values: list[object] = ["MODEL.WEIGHTS", str(out)]
        for key, value in detectron2_options(trunk).items():
            keys_and_values += [key, value]
        return f"config.merge_from_list({keys_and_values})"
    if to == "timm":
        return (
            f'model = timm.create_model("local-dir:{out}", pretrained=True, num_classes=0)\n'
            f"transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))"
        )
    load = f'torch.load("{out}", weights_only=True)'
    if to == "safetensors":
        load = f'safetensors.torch.load_file("{out}")'
    if trunk.timm:
        options = "".join(f", {key}={value!r}" for key, value in trunk.options.items())
        model = f'timm.create_model("{trunk.timm}", num_classes=0{options})'
    elif trunk.is_usual:
        model = f"torchvision.models.resnet{trunk.depth}()\nmodel.fc = torch.nn.Identity()"
    else:  # torchvision has no constructor for it
        options = f"depth={trunk.depth}, width={trunk.width:g}, small_stem={trunk.small_stem}"
        model = f"pirl_plugin.WideResNet({options})"
    return (
        f"model = {model}\n"
        f"model.load_state_dict({load})\n"
        f"normalize = torchvision.transforms.Normalize({mean}, {std})  # {images.size}-px images"
    )


def detectron2_options(trunk: Trunk) -> dict[str, bool | int | str | list[float]]:
    """Return keys and values that build the network, with torchvision's strides and pixels.

    Raises:
        ValueError: Detectron2 has no such network.

    Example:
        >>> detectron2_options(Trunk({}, depth=50, width=2))["MODEL.RESNETS.WIDTH_PER_GROUP"]
        128
    """
    if trunk.timm or trunk.small_stem or trunk.depth == 10:
        raise Refused(
            f"Detectron2 has no {trunk.title}: expected a ResNet-18, 34, 50, 101 or 152 with a "
            f"7×7 stem; export to torchvision or safetensors, or {_PRETRAIN}"
        )
    stem = round(64 * trunk.width)
    basic = trunk.depth < 50  # from 50 on, bottleneck blocks
    images = trunk.preprocessing
    return {
        "MODEL.RESNETS.DEPTH": trunk.depth,
        "MODEL.RESNETS.STEM_OUT_CHANNELS": stem,
        "MODEL.RESNETS.RES2_OUT_CHANNELS": stem if basic else 4 * stem,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 64 if basic else stem,
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
        # Detectron2's pixels are from 0 to 255.
        "MODEL.PIXEL_MEAN": [round(255 * value, 4) for value in images.mean],
        "MODEL.PIXEL_STD": [round(255 * value, 4) for value in images.std],
    }


def write_state_dict(
    tensors: Mapping[str, Tensor], preprocessing: Preprocessing, out: Path
) -> None:
    """Write tensors as ``load_state_dict`` takes them, with the preprocessing of the images.

    The preprocessing is in the attribute that torch keeps with a state dictionary.
    """
    state: Any = OrderedDict(_unshared(tensors))
    if preprocessing.is_known:
        state._metadata = {"": {PREPROCESSING: preprocessing.record()}}
    with atomic_write(out) as file:
        torch.save(state, file)


def write_timm_folder(
    trunk: Trunk, out: Path, classifier: tuple[Tensor, Tensor] | None = None
) -> None:
    """Write ``config.json`` and ``model.safetensors``.

    Args:
        trunk: the network.
        out: the folder; it is made.
        classifier: weight ``(classes, D)`` and bias ``(classes,)`` of a linear classifier; None:
            the network without one.

    Raises:
        ValueError: timm has no such network, or is not installed.
    """
    if not trunk.timm and not trunk.is_usual:
        raise Refused(
            f"timm has no {trunk.title}: expected a ResNet-18, 34, 50, 101 or 152 with a stem of "
            f"7×7 and 64 channels; export to torchvision, or {_PRETRAIN}"
        )
    network: Any = create_network(trunk.timm or f"resnet{trunk.depth}", trunk.options)
    network.load_state_dict(trunk.tensors, strict=False)  # counters may be missing
    if classifier is not None:
        weight, bias = classifier
        network.reset_classifier(len(weight))
        network.get_classifier().load_state_dict({"weight": weight, "bias": bias})
    from timm.models import save_for_hf

    size = trunk.preprocessing.size
    # Not timm's other entries: licence, tag, paper and sizes are of its own weights.
    kept = ("architecture", "first_conv", "classifier", "num_classes", "fixed_input_size")
    network.pretrained_cfg = {
        **{key: value for key, value in network.pretrained_cfg.items() if key in kept},
        "input_size": (3, size, size),
        "mean": trunk.preprocessing.mean,
        "std": trunk.preprocessing.std,
        "crop_pct": 0.875,  # as in our benchmarks: the shorter side is 8/7 of the crop
        "interpolation": "bilinear",
    }
    out.mkdir(parents=True, exist_ok=True)
    save_for_hf(network, str(out), model_args=trunk.options, safe_serialization=True)


def _write_detectron2(trunk: Trunk, out: Path) -> None:
    detectron2_options(trunk)  # refuses a network that Detectron2 does not have
    arrays = {}
    for name, tensor in trunk.weights().items():
        if tensor.dtype == torch.bfloat16:  # numpy has no such type
            tensor = tensor.float()
        arrays[to_detectron2(name)] = tensor.numpy()
    # With matching_heuristics, Detectron2 finds "res5.…" in any module.
    content = {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}
    with atomic_write(out) as file:
        file.write(pickle.dumps(content, protocol=4))


def _write_safetensors(trunk: Trunk, out: Path) -> None:
    from safetensors.torch import save

    metadata = {"format": "pt"}
    if trunk.preprocessing.is_known:
        metadata[PREPROCESSING] = json.dumps(trunk.preprocessing.record())
    with atomic_write(out) as file:
        file.write(save(_unshared(trunk.tensors), metadata))


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies: otherwise the storage of other tensors would be written too."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def main(arguments: list[str]) -> int:
    """Run ``pirl-plugin export --checkpoint FILE --to FORMAT --out OUT``."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin export",
        description="Write a checkpoint's trunk for another program; print the lines that load it.",
        epilog="Example: pirl-plugin export --checkpoint IN --to torchvision --out OUT.pth",
    )
    kinds.add_checkpoint_options(parser)
    add = parser.add_argument
    add("--to", choices=FORMATS, required=True, help="the format")
    add("--out", type=kinds.user_path, required=True, help=".pkl, .pth, …; for timm a folder")
    options = parser.parse_args(arguments)
    chosen = kinds.trunk_options(options)
    prefix = chosen.pop("prefix")
    trunk = export_checkpoint(options.checkpoint, options.out, options.to, trunk=prefix, **chosen)
    place = f" at {trunk.prefix}" if trunk.prefix else ""
    print(
        f"{options.out}: {trunk.title}, {len(trunk.weights())} tensors, from "
        f"{options.checkpoint}{place}"
    )
    print(f"Its images: {trunk.preprocessing}")
    print(f"To load it:\n\n{loading_lines(trunk, options.to, options.out)}")
    return 0
