"""The exact lines that load an exported file, and which library does not have its network."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from pirl_plugin.checkpoints.detectron2_options import detectron2_options
from pirl_plugin.checkpoints.networks import network_of
from pirl_plugin.checkpoints.timm_networks import timm_resnet
from pirl_plugin.checkpoints.timm_trunk import TimmTensors
from pirl_plugin.checkpoints.trunk import Trunk
from pirl_plugin.models.resnet import feature_width
from pirl_plugin.settings import quoted


def loading_lines(found: Trunk | TimmTensors, to: str, out: Path) -> str:
    """Lines to paste, in Python or, for VISSL, in a shell.

    Args:
        found: what was exported.
        to: the format, as of :func:`~pirl_plugin.checkpoints.export.export_checkpoint`.
        out: the file or folder that was written.

    Returns:
        The lines, without a line feed at the end; where a library does not have the network, a
        comment before them says so.
    """
    makers = {
        "detectron2": _detectron2,
        "timm": _timm_folder,
        "torchvision": _torchvision,
        "safetensors": _safetensors,
        "vissl": _vissl,
    }
    return "\n".join(makers[to](found, out))


def missing_library(found: Trunk | TimmTensors, to: str) -> str | None:
    """The sentence that says which library has no constructor for the network; None if it has."""
    if to == "torchvision" and not _in_torchvision(found):
        return f"torchvision has no {found.title}"
    if to == "safetensors" and isinstance(found, Trunk):
        try:
            timm_resnet(found)
        except ValueError:
            return f"timm and torchvision have no {found.title}"
    return None


def _torchvision(found: Trunk | TimmTensors, out: Path) -> list[str]:
    if not _in_torchvision(found):
        return [f"# torchvision has no {found.title}.", *_own_network(found, _torch_load(out))]
    return [
        "import torch",
        "import torchvision",
        "",
        f"model = torchvision.models.resnet{_resnet(found).depth}()",
        "model.fc = torch.nn.Identity()  # features (B, D) instead of scores of classes",
        f"model.load_state_dict({_torch_load(out)})",
    ]


def _safetensors(found: Trunk | TimmTensors, out: Path) -> list[str]:
    load = f"load_file({_text(out)})"
    reader = "from safetensors.torch import load_file"
    if isinstance(found, Trunk) and (missing := missing_library(found, "safetensors")):
        return [f"# {missing}.", reader, *_own_network(found, load)]
    if isinstance(found, TimmTensors):
        architecture, options = found.architecture, found.options
    else:
        architecture, options = timm_resnet(found)
    arguments = "".join(f", {key}={value!r}" for key, value in options.items())
    return [
        "import timm",
        reader,
        "",
        f"model = timm.create_model({_text(architecture)}, num_classes=0{arguments})",
        f"model.load_state_dict({load})",
    ]


def _timm_folder(found: Trunk | TimmTensors, out: Path) -> list[str]:
    return [
        "import timm",
        "",
        f"folder = {_text(f'local-dir:{out}')}",
        "model = timm.create_model(folder, pretrained=True, num_classes=0)",
    ]


def _detectron2(found: Trunk | TimmTensors, out: Path) -> list[str]:
    options: dict[str, object] = {"MODEL.WEIGHTS": str(out), **detectron2_options(_resnet(found))}
    pairs = [
        f"        {_text(key)}, {_text(value) if isinstance(value, str) else value},"
        for key, value in options.items()
    ]
    return [
        "from detectron2.config import get_cfg",
        "",
        "config = get_cfg()",
        'config.merge_from_file("YOUR_CONFIG.yaml")',
        "config.merge_from_list(",
        "    [",
        *pairs,
        "    ]",
        ")",
    ]


def _vissl(found: Trunk | TimmTensors, out: Path) -> list[str]:
    config, trunk = vissl_options(found)
    if config == "quick_linear":
        trunk = [*trunk, "config.MODEL.HEAD.NUM_CLASSES=10"]  # as many as there are folders
    return [
        f"pirl-plugin train config=benchmark/pirl/{config} \\",
        *[f"  {shlex.quote(option)} \\" for option in trunk],
        f"  {shlex.quote(f'config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(out)}')} \\",
        "  config.DATA.TRAIN.DATA_PATHS=[DIR/train] config.DATA.TEST.DATA_PATHS=[DIR/val] \\",
        "  config.CHECKPOINT.DIR=OUT",
    ]


def vissl_options(found: Trunk | TimmTensors) -> tuple[str, list[str]]:
    """A linear benchmark that takes the trunk, and the options that name its network.

    ResNets of widths that no overlay has are measured on their pooled res5 features alone.
    """
    network = network_of(found)
    overrides = network.overrides("linear")
    if isinstance(found, Trunk) and (overrides is None or network.overlay == "resnet10"):
        section = "config.MODEL.TRUNK.PIRL_RESNET"
        return "quick_linear", [
            f"{section}.DEPTH={found.depth}",
            f"{section}.WIDTH_MULTIPLIER={found.width:g}",
            f"++{section}.SMALL_STEM={found.small_stem}",
            f"config.MODEL.HEAD.IN_DIM={feature_width(found.depth, found.width)}",
        ]
    first = 1 if network.overlay == "resnet50" else 0  # which the benchmark has
    return "linear_imagenet1k", (overrides or [])[first:]


def _own_network(found: Trunk | TimmTensors, load: str) -> list[str]:
    resnet = _resnet(found)
    arguments = f"depth={resnet.depth}, width={resnet.width:g}, small_stem={resnet.small_stem}"
    return [
        *(["import torch"] if "torch." in load else []),
        "from pirl_plugin.models.resnet import WideResNet",
        "",
        f"model = WideResNet({arguments})",
        f"model.load_state_dict({load})",
    ]


def _torch_load(out: Path) -> str:
    return f'torch.load({_text(out)}, map_location="cpu", weights_only=True)'


def _text(value: object) -> str:
    """A string of Python, in double quotes."""
    return json.dumps(str(value), ensure_ascii=False)


def _in_torchvision(found: Trunk | TimmTensors) -> bool:
    return (
        isinstance(found, Trunk) and found.width == 1 and not found.small_stem and found.depth != 10
    )


def _resnet(found: Trunk | TimmTensors) -> Trunk:
    """The trunk, a ResNet.

    Raises:
        ValueError: it is another network, which only VISSL and timm take.
    """
    if isinstance(found, TimmTensors):
        raise ValueError(
            f"torchvision and Detectron2 have no {found.title}; export it --to timm, safetensors "
            f"or vissl"
        )
    return found
