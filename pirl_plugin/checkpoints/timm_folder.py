"""A folder that timm loads as ``local-dir:DIR``, and that a hub of models takes as it is.

timm reads the weights of such a folder with ``pretrained=True`` alone; without it, it builds the
network that the folder describes, at random initialisation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.compare import compare
from pirl_plugin.checkpoints.formats import write_safetensors
from pirl_plugin.checkpoints.measurements import find_results
from pirl_plugin.checkpoints.model_card import model_card
from pirl_plugin.checkpoints.timm_networks import timm_resnet
from pirl_plugin.checkpoints.timm_trunk import TimmTensors, build_network
from pirl_plugin.checkpoints.training_run import read_training_run
from pirl_plugin.checkpoints.trunk import Trunk
from pirl_plugin.files import atomic_write
from pirl_plugin.models.timm_trunk import create_network, network_width

if TYPE_CHECKING:
    from torch import Tensor

FILES = ("config.json", "model.safetensors", "README.md")


def write_timm_folder(
    found: Trunk | TimmTensors, out: Path, lines: str, checkpoint: Path, results: list[Path]
) -> None:
    """Write ``config.json``, ``model.safetensors`` and a model card, ``README.md``.

    Args:
        found: the trunk; its features are those of the network that timm builds, to the bit.
        out: the folder; files of an earlier export are replaced.
        lines: what to paste to load it.
        checkpoint: what was exported; the run's ``train_config.yaml`` beside it says how it was
            trained.
        results: JSON files of its measurements, beside those found with the run.

    Raises:
        FileNotFoundError: a file of ``results`` does not exist.
        ValueError: timm does not have the network, its options cannot be written as JSON, a file of
            ``results`` has no measurement of it, or ``out`` is a file, or holds other files.
    """
    if out.exists() and (not out.is_dir() or {p.name for p in out.iterdir()} - set(FILES)):
        raise ValueError(f"OUT = {out}: expected a new folder, or one of an earlier export")
    config, tensors = _config_and_tensors(found)
    run = read_training_run(checkpoint)
    size = run.image_size if run is not None else None
    images = config["pretrained_cfg"]
    if size and not images.get("fixed_input_size"):
        images["input_size"] = [3, size, size]
    if run is not None:
        images["mean"], images["std"] = run.mean or images["mean"], run.std or images["std"]
    measured = find_results(checkpoint, found, results)
    card = model_card(found.title, config, lines, run, measured)
    write_safetensors(tensors, out / "model.safetensors", {"architecture": found.title})
    for name, text in (("config.json", json.dumps(config, indent=2)), ("README.md", card)):
        with atomic_write(out / name) as file:
            file.write(f"{text.rstrip()}\n".encode())


def _config_and_tensors(found: Trunk | TimmTensors) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Timm's ``config.json`` of the trunk, and its tensors with all that timm's network has."""
    if isinstance(found, TimmTensors):
        net = build_network(found)
        architecture, options = found.architecture, found.options
    else:
        architecture, options = timm_resnet(found)
        net = create_network(architecture, options)
        if mismatch := compare(net.state_dict(), found.tensors):
            raise ValueError(f"timm's {architecture} is not {found.title}: {mismatch}")
    # Weights without batch norms' counters get timm's, which are zero: nothing reads them.
    tensors = {**net.state_dict(), **found.tensors}
    source: Any = net.pretrained_cfg
    config = {
        "architecture": architecture,
        "num_classes": 0,
        "num_features": network_width(net),
        "model_args": options,
        "pretrained_cfg": {
            "tag": "pirl",
            "custom_load": False,
            "input_size": list(source.get("input_size") or (3, 224, 224)),
            "fixed_input_size": bool(source.get("fixed_input_size")),
            "interpolation": "bilinear",
            "crop_pct": 0.875,
            "crop_mode": "center",
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "num_classes": 0,
            "pool_size": None,
            "first_conv": source.get("first_conv"),
            "classifier": source.get("classifier"),
        },
    }
    return config, {name: tensors[name] for name in net.state_dict()}
