"""Write a trunk, and a classifier for it, in the formats of other programs."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.checkpoints.classifier import Classifier, ImageNetwork
from pirl_plugin.checkpoints.network_record import TIMM_FILE
from pirl_plugin.checkpoints.tensors import COUNTER
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import create_network, layer_names
from pirl_plugin.models.trunks import AnyTrunk, body_of
from pirl_plugin.system.failures import MissingPackage, Refused
from pirl_plugin.system.files import atomic_write, naming_failures

_PRETRAIN = "pre-train a different network, such as a ResNet-18"
# torchvision's names → Detectron2's, where batch norm is part of a convolution.
_DETECTRON2 = {
    r"^conv1\.": "stem.conv1.",
    r"^bn1\.": "stem.conv1.norm.",
    **{rf"^layer{i}\.": f"res{i + 1}." for i in range(1, 5)},
    r"\.bn(\d)\.": r".conv\1.norm.",
    r"\.downsample\.0\.": ".shortcut.",
    r"\.downsample\.1\.": ".shortcut.norm.",
}


def write_torchvision(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    """Write a state dictionary with torchvision's names, or timm's."""
    with atomic_write(out) as file:
        torch.save(_state(trunk, classifier), file)


def write_safetensors(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    """Write a safetensors file with timm's names; class names are metadata."""
    from safetensors.torch import save

    metadata = {"format": "pt"}
    if classifier is not None:
        metadata["classes"] = json.dumps(classifier.classes)
    content = save(_state(trunk, classifier), metadata)
    with atomic_write(out) as file:
        file.write(content)


def write_timm(trunk: AnyTrunk, folder: Path, classifier: Classifier | None) -> None:
    """Write a folder with weights and timm's ``config.json``.

    Raises:
        Refused: timm has no such network, or is not installed.
    """
    config = trunk.network_config
    if not config.timm_name:
        raise Refused(
            f"timm has no {config.name}, only ResNet-18, 34, 50, 101 and 152 with a 7×7 stem of "
            f"64 channels. Export to safetensors, or {_PRETRAIN}."
        )
    classes = [] if classifier is None else classifier.classes
    options = dict(config.options)
    if isinstance(trunk, WideResNet):
        options = {"in_chans": config.channels}
    with torch.device("meta"):  # only a description is written
        network: Any = create_network(config.timm_name, options)
    network.reset_classifier(len(classes))
    from timm.models._hub import save_config_for_hf  # save_for_hf names no path on a full disk

    # Omit timm's other entries: license, tag, paper and sizes belong to timm's own weights.
    copied_keys = ("architecture", "first_conv", "classifier", "num_classes", "fixed_input_size")
    network.pretrained_cfg = {
        **{key: value for key, value in network.pretrained_cfg.items() if key in copied_keys},
        "input_size": (config.channels, config.size, config.size),
        "mean": config.mean,
        "std": config.std,
        "crop_pct": 0.875,  # as in our benchmarks: the shorter side is 8/7 of the crop
        "interpolation": "bilinear",
    }
    with naming_failures(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_config_for_hf(
            network,
            str(folder / "config.json"),
            {"label_names": classes} if classes else None,
            model_args=options,
        )
    write_safetensors(trunk, folder / TIMM_FILE, classifier)


def write_detectron2(trunk: AnyTrunk, out: Path, _classifier: Classifier | None) -> None:
    """Write a pickle with arrays under Detectron2's names.

    Raises:
        Refused: Detectron2 has no such network.
    """
    detectron2_options(trunk)
    arrays = {}
    for name, tensor in body_of(trunk).state_dict().items():
        if not name.endswith(COUNTER):
            arrays[to_detectron2(name)] = tensor.numpy()
    # With matching_heuristics, Detectron2 finds "res5.…" in any module.
    content = {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}
    with atomic_write(out) as file:
        pickle.dump(content, file, protocol=4)


def write_onnx(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    """Write a network that accepts any number of images of any size; class names are metadata.

    Raises:
        MissingPackage: the extra ``onnx`` is not installed.
    """
    network = ImageNetwork(trunk, classifier).eval()
    images = network.network_config.pixel_type
    # Different sizes, because torch.export would treat equal ones as the same size.
    example = torch.zeros(2, images.channels, 96, 128).to(images.dtype)
    size_of = torch.export.Dim
    sizes = {0: size_of("batch"), 2: size_of("height"), 3: size_of("width")}
    try:
        program: Any = torch.onnx.export(
            network,
            (example,),
            input_names=["images"],
            output_names=["probabilities" if network.classes else "features"],
            dynamic_shapes=[sizes],
            dynamo=True,  # the default since torch 2.9
            verbose=False,
        )
    except ImportError as error:
        raise MissingPackage(
            "Exporting to onnx needs more packages: pip install 'pirl-plugin[onnx]'"
        ) from error
    program.model.metadata_props["classes"] = json.dumps(network.classes)
    with atomic_write(out) as file:
        file.write(program.model_proto.SerializeToString())


WRITERS: dict[str, Callable[[AnyTrunk, Path, Classifier | None], None]] = {
    "detectron2": write_detectron2,
    "onnx": write_onnx,
    "safetensors": write_safetensors,
    "timm": write_timm,
    "torchvision": write_torchvision,
    "vissl": save_trunk,
}
"""Writes a trunk, and a classifier or None, to a file or folder, in one step."""


def _state(trunk: AnyTrunk, classifier: Classifier | None) -> dict[str, Tensor]:
    """Return the other program's names → tensors."""
    # Copies, because otherwise other tensors' storage would be written too.
    state = {name: tensor.clone() for name, tensor in body_of(trunk).state_dict().items()}
    if classifier is not None:
        layers = ["fc"] if isinstance(trunk, WideResNet) else layer_names(trunk.net, "classifier")
        if len(layers) > 1:
            raise Refused(
                f"{trunk.network_config.name} has the classifiers {' and '.join(layers)} in timm. "
                f"Export to onnx."
            )
        state[f"{layers[0]}.weight"] = classifier.weight
        state[f"{layers[0]}.bias"] = classifier.bias
    return state


def detectron2_options(trunk: AnyTrunk) -> dict[str, bool | int | str | list[float]]:
    """Return a Detectron2 configuration for the network, with torchvision's strides and pixels.

    Raises:
        Refused: Detectron2 has no such network.

    Example:
        >>> options = detectron2_options(WideResNet(18, width=2))
        >>> options["MODEL.RESNETS.STEM_OUT_CHANNELS"]
        128
    """
    config = trunk.network_config
    if (
        not isinstance(trunk, WideResNet)
        or config.options["small_stem"]
        or config.options["depth"] == 10
        or config.channels != 3
    ):
        raise Refused(
            f"Detectron2 has no {config.name}, only ResNet-18, 34, 50, 101 and 152 with a 7×7 "
            f"stem and 3 channels. Export to torchvision or safetensors, or {_PRETRAIN}."
        )
    depth = config.options["depth"]
    stem = round(64 * config.options["width"])
    basic = depth < 50  # from 50 on, bottleneck blocks
    return {
        "MODEL.RESNETS.DEPTH": depth,
        "MODEL.RESNETS.STEM_OUT_CHANNELS": stem,
        "MODEL.RESNETS.RES2_OUT_CHANNELS": stem if basic else 4 * stem,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 64 if basic else stem,
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
        # Detectron2's pixels range from 0 to 255.
        "MODEL.PIXEL_MEAN": [round(255 * value, 4) for value in config.mean],
        "MODEL.PIXEL_STD": [round(255 * value, 4) for value in config.std],
    }


def to_detectron2(name: str) -> str:
    """Return Detectron2's name for a tensor in torchvision's ResNet.

    >>> to_detectron2("layer1.0.bn2.running_var")
    'res2.0.conv2.norm.running_var'
    """
    for torchvision_pattern, detectron2 in _DETECTRON2.items():
        name = re.sub(torchvision_pattern, detectron2, name)
    return name
