"""What a detection run needs before it starts: a config, whole weights that fit it, and data."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
import sysconfig
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin import __version__
from pirl_plugin.checkpoints.export import detectron2_options
from pirl_plugin.settings import config_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detectron2.config import CfgNode

    from pirl_plugin.checkpoints.trunk import Trunk


def find_config(name: str) -> Path:
    """Return the file of a config, by its name in ``configs/detection`` or by its path."""
    ours = config_root() / "detection"
    for file in (ours / f"{name}.yaml", Path(name)):
        if file.is_file():
            return file.resolve()
    names = sorted(p.stem for p in ours.glob("*.yaml") if not p.stem.startswith("base_"))
    raise ValueError(f"--config = {name}: expected a file, or one of {', '.join(names)}")


def load_config(file: Path, options: Sequence[str] = ()) -> CfgNode:
    """Return Detectron2's configuration of a file, with ``KEY VALUE …`` over it."""
    from detectron2.config import get_cfg

    config = get_cfg()
    config.merge_from_file(str(file))
    config.merge_from_list(list(options))
    return config


def check_weights(config: CfgNode, trunk: Trunk) -> None:
    """Compare the network of the config with the weights.

    Raises:
        ValueError: they differ; gives the options that would make the config fit.
    """
    from pirl_plugin.checkpoints.trunk import is_bottleneck

    if not is_bottleneck(trunk.depth) and config.MODEL.ROI_HEADS.NAME.startswith("Res5"):
        raise ValueError(f"--checkpoint = {trunk.title}: expected ResNet-50, 101 or 152")
    found = {key: reduce(getattr, key.split("."), config) for key in detectron2_options(trunk)}
    differ = {key: v for key, v in detectron2_options(trunk).items() if found[key] != v}
    if differ:
        options = " ".join(f'{key} "{value}"' for key, value in differ.items())
        raise ValueError(
            f"the weights are {trunk.title} in torchvision's layout, and the config says "
            f"{', '.join(f'{key} {found[key]}' for key in differ)}: add {options}"
        )


def check_data(config: CfgNode) -> None:
    """Check that the data sets of a config are where Detectron2 looks for them."""
    from detectron2.data import MetadataCatalog

    for name in (*config.DATASETS.TRAIN, *config.DATASETS.TEST):
        about = MetadataCatalog.get(name)
        if about.get("evaluator_type") == "pascal_voc":
            path = Path(about.dirname, "ImageSets", "Main", f"{about.split}.txt")
        else:
            path = Path(about.json_file)
        if not path.is_file():
            raise FileNotFoundError(
                f"{name}: expected {path}; name the folder of VOC2007, VOC2012 and coco with "
                f"--data DIR, or with DETECTRON2_DATASETS"
            )


def metric_kind(dataset: str) -> str:
    """Return how the AP of a data set is computed; kinds differ by a point or two."""
    from detectron2.data import MetadataCatalog

    about = MetadataCatalog.get(dataset)
    if about.get("evaluator_type") != "pascal_voc":
        return "COCO, 101 recall points, IoU 0.50:0.95"
    kind = "2007, 11 recall points" if about.year == 2007 else "2010 and later, every recall point"
    return f"PASCAL VOC {kind}, IoU 0.50:0.95"


def versions() -> dict[str, str]:
    """Return what a run is made with."""
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
    """Import Detectron2, or raise ``ModuleNotFoundError`` with the commands that install it."""
    try:
        importlib.import_module("detectron2.engine")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Detectron2 is not installed: {error}; {sys.executable} -m pip install pycocotools "
            f"cloudpickle, git clone https://github.com/facebookresearch/detectron2, and link its "
            f"folder detectron2/detectron2 into {sysconfig.get_paths()['purelib']}"
        ) from None
