"""Detectron2 from a checkout, and a network small enough for detection on a CPU."""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import pytest

if "PIRL_DETECTRON2" in os.environ:
    # Only the package: the checkout also has folders named tools, configs and tests.
    _folder = tempfile.mkdtemp(prefix="pirl_detectron2_")
    Path(_folder, "detectron2").symlink_to(Path(os.environ["PIRL_DETECTRON2"], "detectron2"))
    sys.path.append(_folder)
    _paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join([*_paths, _folder])  # for child processes

needs_detectron2 = [
    pytest.mark.detectron2,
    pytest.mark.skipif(
        importlib.util.find_spec("detectron2") is None,
        reason="PIRL_DETECTRON2 names no checkout of Detectron2; docs/guides/detection.md",
    ),
]

WIDTH = 0.25  # relative to ResNet-50; NARROW makes Detectron2 match it
NARROW = [
    *("MODEL.RESNETS.STEM_OUT_CHANNELS", "16"),
    *("MODEL.RESNETS.RES2_OUT_CHANNELS", "64"),
    *("MODEL.RESNETS.WIDTH_PER_GROUP", "16"),
]
SMALL = [*NARROW, "INPUT.MIN_SIZE_TRAIN", "(64,)", "INPUT.MIN_SIZE_TEST", "64"]
