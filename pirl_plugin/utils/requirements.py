"""What to say where VISSL or Detectron2 is not installed; standard library only."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
import warnings

NOT_INSTALLED = (
    "VISSL is not installed: pip install --no-deps vissl==0.1.6 (and, where this plugin was "
    "installed with --no-deps, install it again without)"
)


def require_host() -> None:
    """For commands.

    Raises:
        SystemExit: VISSL is not installed.
    """
    if importlib.util.find_spec("vissl") is None:
        raise SystemExit(NOT_INSTALLED)


def require_detectron2() -> None:
    """For commands.

    Raises:
        SystemExit: Detectron2 is not installed, or lacks a package; says how to install it here.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".torch.jit.script", category=FutureWarning)
            importlib.import_module("detectron2.engine")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "detectron2":
            raise SystemExit(how_to_install_detectron2()) from None
        raise SystemExit(
            f"Detectron2 needs {package}: {sys.executable} -m pip install {package}"
        ) from None


def how_to_install_detectron2() -> str:
    """The commands, for the Python and the torch that run this."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "torchvision")]
    return (
        f"Detectron2 is not installed. It is on no package index, and its compiled part, which has "
        f"to be built for one torch, is not needed here: Faster R-CNN C4 takes ROIAlign and NMS "
        f"from torchvision. With {versions[0]} and {versions[1]}:\n"
        f"  git clone --depth 1 https://github.com/facebookresearch/detectron2\n"
        f"  {sys.executable} -m pip install pycocotools cloudpickle\n"
        f'  ln -s "$PWD/detectron2/detectron2" {sysconfig.get_paths()["purelib"]}/'
    )
