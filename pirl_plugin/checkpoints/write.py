"""Write a trunk for another program, with size, mean and deviation of its images."""

from __future__ import annotations

import json
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from pirl_plugin.checkpoints.classifier import CLASSIFIER, Classifier
from pirl_plugin.checkpoints.trunk import Trunk
from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.timm_trunk import create_network
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write

FORMATS = ("detectron2", "torchvision", "safetensors", "vissl", "timm")
PREPROCESSING = "preprocessing"
"""Key of the preprocessing's record in the files that this package writes."""
_PRETRAIN = "pre-train another network, with +config/pirl/models=resnet18"
# torchvision's names → Detectron2's. There, a batch norm is part of a convolution.
_DETECTRON2 = {
    r"^conv1\.": "stem.conv1.",
    r"^bn1\.": "stem.conv1.norm.",
    **{rf"^layer{i}\.": f"res{i + 1}." for i in range(1, 5)},
    r"\.bn(\d)\.": r".conv\1.norm.",
    r"\.downsample\.0\.": ".shortcut.",
    r"\.downsample\.1\.": ".shortcut.norm.",
}


def write_trunk(trunk: Trunk, out: Path, to: str, classifier: Classifier | None = None) -> None:
    """Write a trunk in one step; values keep their bits.

    Args:
        trunk: the network, and the preprocessing of its images.
        out: the file; for timm, the folder.
        to: one of ``FORMATS``.
        classifier: of the pooled features, for ``torchvision`` and ``timm``; None: the network
            without one.

    Raises:
        Refused: timm or Detectron2 has no such network, or timm is not installed.
    """
    if to == "timm":
        _write_timm_folder(trunk, out, classifier)
        return
    if to == "detectron2":
        detectron2_options(trunk)  # refuses a network that Detectron2 does not have
    with atomic_write(out) as file:
        if to == "detectron2":
            pickle.dump(_detectron2_content(trunk), file, protocol=4)
        elif to == "safetensors":
            file.write(_safetensors_content(trunk))
        elif to == "vissl":
            state = _unshared(trunk.vissl_state())
            torch.save(vissl_checkpoint(state, trunk.preprocessing), file)
        else:
            torch.save(_state_dict(trunk, classifier), file)


def save_trunk(trunk: AnyTrunk, path: str | Path, classifier: Classifier | None = None) -> None:
    """Write a module as a checkpoint that the host's benchmarks take as ``PARAMS_FILE``.

    Args:
        trunk: the module.
        path: of the file.
        classifier: of the trunk's features; ``embed`` writes what it predicts.
    """
    content = vissl_checkpoint(trunk.state_dict(), trunk.preprocessing)
    if classifier is not None:
        content[CLASSIFIER] = classifier.record()
    with atomic_write(path) as file:
        torch.save(content, file)


def vissl_checkpoint(
    trunk: Mapping[str, Tensor], preprocessing: Preprocessing | None = None
) -> dict[str, object]:
    """Return a checkpoint that VISSL takes as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``.

    Args:
        trunk: tensors by the trunk's own names, from :meth:`Trunk.vissl_state`.
        preprocessing: of the trunk's images.
    """
    model = {"trunk": dict(trunk), "heads": {}}
    checkpoint: dict[str, object] = {
        "type": "consolidated",
        "classy_state_dict": {"base_model": {"model": model}},
    }
    if preprocessing is not None and preprocessing.is_known:
        checkpoint[PREPROCESSING] = preprocessing.record()
    return checkpoint


def detectron2_options(trunk: Trunk) -> dict[str, bool | int | str | list[float]]:
    """Return keys and values that build the network, with torchvision's strides and pixels.

    Raises:
        Refused: Detectron2 has no such network.

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


def to_detectron2(name: str) -> str:
    """Return Detectron2's name of a tensor of torchvision's ResNet.

    >>> to_detectron2("layer1.0.bn2.running_var")
    'res2.0.conv2.norm.running_var'
    """
    for torchvision_pattern, detectron2 in _DETECTRON2.items():
        name = re.sub(torchvision_pattern, detectron2, name)
    return name


def _write_timm_folder(trunk: Trunk, out: Path, classifier: Classifier | None) -> None:
    """Write ``config.json`` and ``model.safetensors``; the folder is made."""
    if not trunk.timm and not trunk.is_usual:
        raise Refused(
            f"timm has no {trunk.title}: expected a ResNet-18, 34, 50, 101 or 152 with a stem of "
            f"7×7 and 64 channels; export to torchvision, or {_PRETRAIN}"
        )
    network: Any = create_network(trunk.timm or f"resnet{trunk.depth}", trunk.options)
    network.load_state_dict(trunk.tensors, strict=False)  # counters may be missing
    if classifier is not None:
        _set_classifier(network, trunk, classifier)
    from timm.models import save_for_hf

    size = trunk.preprocessing.size
    # Not timm's other entries: licence, tag, paper and sizes are of its own weights.
    copied_keys = ("architecture", "first_conv", "classifier", "num_classes", "fixed_input_size")
    network.pretrained_cfg = {
        **{key: value for key, value in network.pretrained_cfg.items() if key in copied_keys},
        "input_size": (3, size, size),
        "mean": trunk.preprocessing.mean,
        "std": trunk.preprocessing.std,
        "crop_pct": 0.875,  # as in our benchmarks: the shorter side is 8/7 of the crop
        "interpolation": "bilinear",
    }
    out.mkdir(parents=True, exist_ok=True)
    save_for_hf(network, str(out), model_args=trunk.options, safe_serialization=True)


def _set_classifier(network: Any, trunk: Trunk, classifier: Classifier) -> None:
    """Give a network of timm a classifier.

    Raises:
        Refused: its scores are not those of one linear layer of the pooled features.
    """
    network.reset_classifier(len(classifier.classes))
    layer = network.get_classifier()
    weight = getattr(layer, "weight", None)  # several layers, as of a distilled network, have none
    if isinstance(weight, Tensor) and weight.numel() == classifier.weight.numel():
        state = {"weight": classifier.weight.view_as(weight), "bias": classifier.bias}
        layer.load_state_dict(state)
        # Some networks add the scores of another layer, or normalise the features in between.
        images = torch.rand(2, 3, trunk.preprocessing.size, trunk.preprocessing.size)
        with torch.no_grad():
            (features,) = trunk.build()(images)
            expected = linear(features, classifier.weight, classifier.bias)
            scores = network.eval()(images)
        if torch.allclose(scores, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
            return
    raise Refused(
        f"timm's {trunk.timm} has no classifier that is one linear layer of its pooled features: "
        f"expected one; take classifier.torch, with pirl-plugin embed"
    )


def _detectron2_content(trunk: Trunk) -> dict[str, object]:
    """Return what Detectron2 reads from a pickle: arrays by its own names."""
    arrays = {}
    for name, tensor in trunk.weights().items():
        if tensor.dtype == torch.bfloat16:  # numpy has no such type
            tensor = tensor.float()
        arrays[to_detectron2(name)] = tensor.numpy()
    # With matching_heuristics, Detectron2 finds "res5.…" in any module.
    return {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}


def _safetensors_content(trunk: Trunk) -> bytes:
    """Return the tensors by torchvision's or timm's names, and the record of the preprocessing."""
    from safetensors.torch import save

    metadata = {"format": "pt"}
    if trunk.preprocessing.is_known:
        metadata[PREPROCESSING] = json.dumps(trunk.preprocessing.record())
    return save(_unshared(trunk.tensors), metadata)


def _state_dict(trunk: Trunk, classifier: Classifier | None) -> dict[str, Tensor]:
    """Return tensors as ``load_state_dict`` takes them, with the record of the preprocessing.

    The record is in the attribute that torch keeps with a state dictionary.
    """
    state: Any = OrderedDict(_unshared(trunk.tensors))
    if classifier is not None:
        state["fc.weight"] = classifier.weight
        state["fc.bias"] = classifier.bias
    if trunk.preprocessing.is_known:
        state._metadata = {"": {PREPROCESSING: trunk.preprocessing.record()}}
    tensors: dict[str, Tensor] = state
    return tensors


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies: otherwise the storage of other tensors would be written too."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
