"""Save a trunk with its record, and write it for other programs."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet

from pirl_plugin.checkpoints.classifier import CLASSIFIER, Classifier, ImageNetwork
from pirl_plugin.checkpoints.load import NETWORK, TIMM_FILE, find_trunk
from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.checkpoints.tensors import COUNTER
from pirl_plugin.models.network_config import RESNET, NetworkConfig, network_config_of
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.models.timm_trunk import TimmTrunk, check_description, create_network
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import MissingPackage, Refused
from pirl_plugin.system.files import atomic_write, naming_failures
from pirl_plugin.system.text import counted

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


def save_trunk(trunk: nn.Module, path: str | Path, classifier: Classifier | None = None) -> None:
    """Save a trunk together with its record, for :func:`pirl_plugin.load_trunk` and all commands.

    VISSL reads the file as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``. An existing file is replaced
    at the end, in one step.

    Args:
        trunk: any network. ``load_trunk`` and the commands can build a
            :class:`pirl_plugin.WideResNet`, an equal torchvision ResNet, and a timm network with
            plain options; ``load_trunk(path, network=module)`` loads any other into a module.
        path: the file, such as ``trunk.torch``.
        classifier: a classifier for the trunk's features; ``embed`` writes its predictions.

    Example:
        >>> import tempfile
        >>> from pirl_plugin import WideResNet, load_trunk
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_trunk(WideResNet(10, width=0.5), f"{folder}/trunk.torch")
        ...     load_trunk(f"{folder}/trunk.torch").network_config.name
        'ResNet-10 of width 0.5'
    """
    config = network_config_of(trunk)
    state = trunk.state_dict()
    if not isinstance(trunk, (ResNetTrunk, TimmTrunk)):
        # Under VISSL's trunk names, which VISSL's benchmarks need.
        prefix = "_feature_blocks." if isinstance(trunk, ResNet) else "net."
        state = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    if not _can_be_built(trunk, config, state):
        name = type(trunk).__qualname__
        config = replace(config, architecture="", options={}, network_class=name)
    if classifier is not None:
        # The classifier needs the images that it was fitted to, even if a default chose them.
        names = ("size", "mean", "std", "dtype")
        values = {name: getattr(config, name) for name in names}
        config = config.with_values("run", statistics=config.statistics or None, **values)
    content = vissl_checkpoint(state, config)
    if classifier is not None:
        content[CLASSIFIER] = asdict(classifier)
    with atomic_write(path) as file:
        torch.save(content, file)


def _can_be_built(trunk: nn.Module, config: NetworkConfig, state: Mapping[str, Tensor]) -> bool:
    """Return whether ``load_trunk`` can build a network from its record and tensors."""
    name = type(trunk).__name__
    try:
        if config.architecture not in ("", RESNET):
            check_description(config.architecture, config.options)
        if isinstance(trunk, (ResNetTrunk, TimmTrunk)):
            return True
        built = find_trunk(state, config.architecture, config.options, name)
    except Refused:
        return False
    return _layers(trunk) == _layers(built)


def _layers(network: Any) -> list[str]:
    """Return a network's layers with their settings, except the classifier."""
    classifier = network.fc if isinstance(network, ResNet) else None
    if hasattr(network, "get_classifier"):  # timm's
        classifier = network.get_classifier()
    layers = []
    for layer in network.modules():
        has_parts = next(layer.children(), None) is not None
        if has_parts or layer is classifier or isinstance(layer, (nn.Flatten, nn.Identity)):
            continue
        layers.append(str(layer).replace("SyncBatchNorm", "BatchNorm2d"))
    return layers


def write_trunk(trunk: AnyTrunk, out: Path, to: str, classifier: Classifier | None = None) -> None:
    """Write a trunk for another program, in one step.

    Args:
        trunk: the network.
        out: the file; for timm, the folder.
        to: one of ``FORMATS``.
        classifier: the classifier; on the pooled features, except for ``onnx`` and ``vissl``.

    Raises:
        MissingPackage: a package for this format is not installed.
        Refused: the other program has no such network, or timm is not installed.
    """
    _WRITERS[to](trunk, out, classifier)


def _write_torchvision(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    _require_three_channels(trunk, "torchvision")
    with atomic_write(out) as file:
        torch.save(_state(trunk, classifier), file)


def _write_safetensors(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    from safetensors.torch import save

    metadata = {"format": "pt"}
    if classifier is not None:
        metadata["classes"] = json.dumps(classifier.classes)
    content = save(_state(trunk, classifier), metadata)
    with atomic_write(out) as file:
        file.write(content)


def _write_timm(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    _write_timm_config(trunk, out, [] if classifier is None else classifier.classes)
    _write_safetensors(trunk, out / TIMM_FILE, classifier)


def _write_detectron2(trunk: AnyTrunk, out: Path, _classifier: Classifier | None) -> None:
    _require_three_channels(trunk, "detectron2")
    detectron2_options(trunk)  # refuses networks that Detectron2 lacks
    with atomic_write(out) as file:
        pickle.dump(_detectron2_content(trunk), file, protocol=4)


def _require_three_channels(trunk: AnyTrunk, to: str) -> None:
    channels = trunk.network_config.channels
    if channels != 3:
        raise Refused(
            f"The network reads {counted(channels, 'channel')}, but {to} needs 3. Export to "
            f"safetensors."
        )


def _state(trunk: AnyTrunk, classifier: Classifier | None) -> dict[str, Tensor]:
    """Return the other program's names → tensors."""
    # Copies, because otherwise other tensors' storage would be written too.
    state = {name: tensor.clone() for name, tensor in trunk.body.state_dict().items()}
    if classifier is not None:
        name = _classifier_name(trunk)
        state[f"{name}.weight"] = classifier.weight
        state[f"{name}.bias"] = classifier.bias
    return state


def _classifier_name(trunk: AnyTrunk) -> str:
    """Return the classifier's name in the other program's network."""
    if isinstance(trunk, ResNetTrunk):
        return "fc"
    name = trunk.net.pretrained_cfg["classifier"]
    if not isinstance(name, str):
        raise Refused(
            f"{trunk.network_config.name} has the classifiers {' and '.join(name)} in timm. Export "
            f"to onnx."
        )
    return name


def _write_onnx(trunk: AnyTrunk, out: Path, classifier: Classifier | None) -> None:
    """Write a network that accepts any number of images of any size."""
    network = ImageNetwork(trunk, classifier).eval()
    images = network.network_config.pixel_type
    # Different sizes, because torch.export would treat equal ones as the same size.
    example = torch.zeros(2, images.channels, 96, 128).to(images.dtype)
    sizes = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height")}
    sizes[3] = torch.export.Dim("width")
    try:
        program: Any = torch.onnx.export(
            network,
            (example,),
            input_names=["images"],
            output_names=["probabilities" if network.classes else "features"],
            dynamic_shapes=[sizes],
            verbose=False,
        )
    except ImportError as error:
        raise MissingPackage(
            "Exporting to onnx needs more packages: pip install 'pirl-plugin[onnx]'"
        ) from error
    program.model.metadata_props["classes"] = json.dumps(network.classes)
    with atomic_write(out) as file:
        file.write(program.model_proto.SerializeToString())


def vissl_checkpoint(
    trunk: Mapping[str, Tensor], config: NetworkConfig | None = None
) -> dict[str, Any]:
    """Return a checkpoint that VISSL reads as ``config.MODEL.WEIGHTS_INIT.PARAMS_FILE``.

    Args:
        trunk: tensors under VISSL's trunk names.
        config: the network's record.
    """
    states: dict[str, Any] = {"base_model": {"model": {"trunk": dict(trunk), "heads": {}}}}
    if config is not None:
        states["hooks"] = {SECTION: {NETWORK: config.to_dict()}}
    return {"type": "consolidated", "classy_state_dict": states}


def detectron2_options(trunk: AnyTrunk) -> dict[str, bool | int | str | list[float]]:
    """Return a Detectron2 configuration for the network, with torchvision's strides and pixels.

    Raises:
        Refused: Detectron2 has no such network.

    Example:
        >>> options = detectron2_options(ResNetTrunk(18, width=2))
        >>> options["MODEL.RESNETS.STEM_OUT_CHANNELS"]
        128
    """
    config = trunk.network_config
    if (
        not isinstance(trunk, ResNetTrunk)
        or config.options["small_stem"]
        or config.options["depth"] == 10
    ):
        raise Refused(
            f"Detectron2 has no {config.name}, only ResNet-18, 34, 50, 101 and 152 with a 7×7 "
            f"stem. Export to torchvision or safetensors, or {_PRETRAIN}."
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


def _write_timm_config(trunk: AnyTrunk, folder: Path, classes: list[str]) -> None:
    """Create a folder, and write timm's ``config.json`` into it."""
    config = trunk.network_config
    if not config.timm_name:
        raise Refused(
            f"timm has no {config.name}, only ResNet-18, 34, 50, 101 and 152 with a 7×7 stem of "
            f"64 channels. Export to safetensors, or {_PRETRAIN}."
        )
    network: Any = create_network(config.timm_name, config.timm_options)
    network.load_state_dict(trunk.body.state_dict())
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
            model_args=config.timm_options,
        )


def _detectron2_content(trunk: AnyTrunk) -> dict[str, object]:
    """Return the content that Detectron2 reads from a pickle: arrays under Detectron2's names."""
    arrays = {}
    for name, tensor in trunk.body.state_dict().items():
        if not name.endswith(COUNTER):
            arrays[to_detectron2(name)] = tensor.numpy()
    # With matching_heuristics, Detectron2 finds "res5.…" in any module.
    return {"model": arrays, "__author__": "pirl_plugin", "matching_heuristics": True}


_WRITERS: dict[str, Callable[[AnyTrunk, Path, Classifier | None], None]] = {
    "detectron2": _write_detectron2,
    "onnx": _write_onnx,
    "safetensors": _write_safetensors,
    "timm": _write_timm,
    "torchvision": _write_torchvision,
    "vissl": save_trunk,
}
