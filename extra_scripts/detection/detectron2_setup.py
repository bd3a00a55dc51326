"""Prepare a detection run: Detectron2, config, and versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin import __version__
from pirl_plugin.system.failures import MissingPackage, Refused
from pirl_plugin.vissl.host_config import config_root

if TYPE_CHECKING:
    from detectron2.config import CfgNode


def find_config(name: str) -> Path:
    """Return a config file, by its name in ``configs/detection`` or by its path."""
    folder = config_root() / "detection"
    for file in (folder / f"{name}.yaml", Path(name)):
        if file.is_file():
            return file.resolve()
    files = folder.glob("*.yaml")
    names = sorted(file.stem for file in files if not file.stem.startswith("base_"))
    raise Refused(f"--config = {name}: no such file. Choose one of {', '.join(names)}, or a file.")


def load_config(file: Path, options: Sequence[str] = ()) -> CfgNode:
    """Load a Detectron2 configuration from a file, and apply ``KEY VALUE …``.

    Raises:
        Refused: the file, or a file that it names as ``_BASE_``, holds more than plain YAML.
    """
    import yaml
    from detectron2.config import get_cfg

    config = get_cfg()
    try:
        # By default, Detectron2 runs the code in a YAML file that safe loading refuses.
        config.merge_from_file(str(file), allow_unsafe=False)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise Refused(f"--config = {file}: not plain YAML ({reason})") from error
    config.merge_from_list(list(options))
    return config


def metric_kind(dataset: str) -> str:
    """Return how AP is computed for a data set; the kinds differ by a point or two."""
    from detectron2.data import MetadataCatalog

    metadata = MetadataCatalog.get(dataset)
    if metadata.get("evaluator_type") != "pascal_voc":
        return "COCO, 101 recall points, IoU 0.50:0.95"
    is_2007 = metadata.year == 2007
    kind = "2007, 11 recall points" if is_2007 else "2010 and later, every recall point"
    return f"PASCAL VOC {kind}, IoU 0.50:0.95"


def versions() -> dict[str, str]:
    """Return the versions of the libraries, and the device."""
    import detectron2
    import torch

    return {
        "pirl_plugin": __version__,
        "detectron2": detectron2.__version__,
        **{name: importlib.metadata.version(name) for name in ("torch", "torchvision", "numpy")},
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
    }


def require_detectron2() -> None:
    """Raise ``ModuleNotFoundError`` if Detectron2 is not installed."""
    if importlib.util.find_spec("detectron2") is None:
        raise MissingPackage(
            "Detectron2 is not installed: docs/guides/detection.md has the three commands"
        )
