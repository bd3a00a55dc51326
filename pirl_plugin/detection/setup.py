"""What a detection run needs before it starts: a config, whole weights that fit it, and data."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import subprocess
import sys
import sysconfig
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
    """The file of a config, by its name in ``configs/detection`` or by its path.

    Raises:
        ValueError: neither; names those that there are.
    """
    ours = config_root() / "detection"
    if (ours / f"{name}.yaml").is_file():
        return ours / f"{name}.yaml"
    if Path(name).is_file():
        return Path(name).resolve()
    names = sorted(p.stem for p in ours.glob("*.yaml") if not p.stem.startswith("base_"))
    raise ValueError(f"--config {name} is no file, and none of {', '.join(names)}")


def load_config(file: Path, options: Sequence[str] = ()) -> CfgNode:
    """Detectron2's configuration of a file, with ``KEY VALUE …`` over it.

    Raises:
        ValueError: an unknown key, or a key without a value.
    """
    from detectron2.config import get_cfg

    if len(options) % 2:
        raise ValueError(f"'{' '.join(options)}' is not pairs of KEY VALUE")
    config = get_cfg()
    try:
        config.merge_from_file(str(file))
        config.merge_from_list(list(options))
    except (AssertionError, KeyError, ValueError) as error:
        raise ValueError(f"{file} with '{' '.join(options)}': {error}") from error
    return config


def check_machine(config: CfgNode, num_gpus: int) -> None:
    """Compare what is asked for with the GPUs at hand.

    Raises:
        ValueError: too few.
    """
    import torch

    here = torch.cuda.device_count()
    if config.MODEL.DEVICE == "cpu":
        if num_gpus > 0:
            raise ValueError(f"--num-gpus {num_gpus} with MODEL.DEVICE cpu: leave --num-gpus out")
    elif num_gpus < 1 or num_gpus > here:
        raise ValueError(
            f"{here} GPUs here, {num_gpus} asked for: give --num-gpus, or, to see that all parts "
            f"work on a CPU, --config smoke_cpu"
        )


def check_weights(config: CfgNode, trunk: Trunk) -> None:
    """Compare what the config builds with what the weights are.

    Raises:
        ValueError: they differ; gives the options that would make the config fit.
    """
    from pirl_plugin.checkpoints.trunk import is_bottleneck

    if not is_bottleneck(trunk.depth) and config.MODEL.ROI_HEADS.NAME.startswith("Res5"):
        raise ValueError(
            f"the weights are {trunk.title}, and Faster R-CNN C4 has bottlenecks: expected "
            f"ResNet-50, 101 or 152"
        )
    wanted = detectron2_options(trunk)
    differ = {key: value for key, value in wanted.items() if _get(config, key) != value}
    if differ:
        options = " ".join(f'{k} "{v}"' for k, v in differ.items())
        raise ValueError(
            f"the weights are {trunk.title} in torchvision's layout, and the config says "
            f"{', '.join(f'{k} {_get(config, k)}' for k in differ)}: add {options}"
        )


def check_data(config: CfgNode) -> None:
    """See that the data sets of a config lie where Detectron2 looks for them.

    Raises:
        ValueError: an unknown data set, several to test on, or files that are not there.
    """
    from detectron2.data import DatasetCatalog, MetadataCatalog

    if len(config.DATASETS.TEST) != 1:
        raise ValueError(f"DATASETS.TEST is {config.DATASETS.TEST}: expected one data set")
    for name in (*config.DATASETS.TRAIN, *config.DATASETS.TEST):
        if name not in DatasetCatalog.list():
            raise ValueError(f"Detectron2 knows no data set '{name}'")
        about = MetadataCatalog.get(name)
        if about.get("evaluator_type") == "pascal_voc":
            folder = Path(about.dirname)
            needed = [folder / "ImageSets" / "Main" / f"{about.split}.txt"]
            needed += [folder / "Annotations", folder / "JPEGImages"]
        else:
            needed = [Path(about.json_file), Path(about.image_root)]
        if lacking := [str(path) for path in needed if not path.exists()]:
            raise ValueError(
                f"{name}: no {lacking[0]}; say where the folders VOC2007, VOC2012 and coco lie "
                f"with --data DIR, or with DETECTRON2_DATASETS"
            )


def metric_kind(dataset: str) -> str:
    """How the AP of a data set is computed; kinds differ by a point or two on the same boxes."""
    from detectron2.data import MetadataCatalog

    about = MetadataCatalog.get(dataset)
    if about.get("evaluator_type") != "pascal_voc":
        return "COCO, 101 recall points, IoU 0.50:0.95"
    return (
        "PASCAL VOC 2007, 11 recall points, IoU 0.50:0.95"
        if about.year == 2007
        else "PASCAL VOC 2010 and later, every recall point, IoU 0.50:0.95"
    )


def versions() -> dict[str, str]:
    """What a run is made with; Detectron2 by its commit, for its version stays."""
    import detectron2
    import torch

    folder = Path(detectron2.__file__).resolve().parent
    git = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--show-toplevel", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    top, _, commit = git.stdout.strip().partition("\n")
    if git.returncode != 0 or Path(top) != folder.parent:  # not Detectron2's own checkout
        commit = "commit unknown"
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else platform.machine()
    return {
        "pirl_plugin": __version__,
        "detectron2": f"{detectron2.__version__}, {commit}",
        "torch": str(torch.__version__),
        **{n: importlib.metadata.version(n) for n in ("torchvision", "numpy")},
        "python": platform.python_version(),
        "device": device,
    }


def _get(config: CfgNode, key: str) -> object:
    value = config
    for part in key.split("."):
        value = value[part]
    return value


def require_detectron2() -> None:
    """Import Detectron2.

    Raises:
        ModuleNotFoundError: it is not installed, or lacks a package; says how to install it here.
    """
    try:
        importlib.import_module("detectron2.engine")
    except ModuleNotFoundError as error:
        python = sys.executable
        if error.name and not error.name.startswith("detectron2"):
            text = f"Detectron2 is not installed whole: {python} -m pip install {error.name}"
            raise ModuleNotFoundError(text) from None
        raise ModuleNotFoundError(
            f"Detectron2 is not installed: {python} -m pip install pycocotools cloudpickle, git "
            f"clone https://github.com/facebookresearch/detectron2, and link its folder "
            f"detectron2/detectron2 into {sysconfig.get_paths()['purelib']}; nothing is compiled"
        ) from None
