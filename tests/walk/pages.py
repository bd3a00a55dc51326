"""Shell blocks in README and guides, and folders with the files they name.

A placeholder such as ``IMAGENET`` is a path in the page's folder. Blocks therefore run as printed,
except for the names in :data:`REPLACED`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.helpers import finished_runs
from tests.helpers.host_runs import host_script
from tests.walk import tiny
from tests.walk.shell import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "getting_started.md",
    ROOT / "docs" / "speed.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
]
NOT_RUN = {  # words in a block -> why it is not run
    "extra_scripts/run_tests.sh": "this is what runs",
    "ILSVRC2012": "needs ImageNet's archives",
    "torchvision.datasets import ImageNet": "needs ImageNet's archives",
    "github.com/facebookresearch/detectron2": "a clone from the network",
    "detection/train_net.py": "needs Detectron2; `-m detectron2` runs it",
    "object_detection_benchmark": "needs Detectron2; `-m detectron2` runs it",
    "PIRL_DETECTRON2": "needs Detectron2",
}
REPLACED = {  # what a page says -> what runs
    r"\b(extra_scripts|docs/examples)/": f"{ROOT}/\\1/",
    r"tools/run_distributed_engines\.py": str(host_script()),
    r"FIRST_HOST:29500": "localhost:0",
    r"--nnodes 2": "--nnodes 1",
    r"phase\d+\.torch": "phase0.torch",
    r"--timm tf_efficientnet_lite0 --pretrained": "--checkpoint CHECKPOINT",  # no network
    r"(quickstart\.sh[^#\n]*)": r"\1 --epochs 1 ",
}
DEFAULT: dict[str, Callable[[Path], None]] = {
    "DIR": tiny.folder,
    "IMAGENET": tiny.folder,
    "LABELED": tiny.folder,
    "PHOTOS": tiny.photos,
    "LARGER": tiny.photos,
    "BANDS": tiny.bands,
    "photos": tiny.photos,
}
CONTENT: dict[
    str, dict[str, Callable[[Path], None] | None]
] = {  # page -> content that differs there
    "README": {"DIR": tiny.photos},
    "pretraining": {"DIR": tiny.photos},
    "data": {"DIR": tiny.papers},
    "experiments": {"DIR": tiny.papers, "VOCdevkit": tiny.voc},
    "export": {"DIR": None},
}
RUNS = {  # finished run for `results.py` -> column, and row of its pre-training
    "runs/linear": ("ImageNet", "PIRL"),
    "runs/linear_jigsaw": ("ImageNet", "Jigsaw"),
    "runs/svm": ("VOC07", "PIRL"),
    "runs/places": ("Places205", "PIRL"),
}
CHECKPOINTS = ("CHECKPOINT", "IN", "OUT/checkpoint.torch", "model_final_checkpoint_phase0.torch")


def blocks() -> list[tuple[str, int, str]]:
    """Return page, number within the page, and text for each block to run."""
    return [
        (page.stem, number, text)
        for page in PAGES
        for number, text in enumerate(re.findall(r"```bash\n(.*?)```", page.read_text(), re.S))
        if not any(words in text for words in NOT_RUN)
    ]


def replaced(text: str) -> str:
    """Return a block with values for this machine."""
    for printed, value in REPLACED.items():
        text = re.sub(printed, value, text)
    return text


def prepare(text: str, folder: Path) -> None:
    """Remove the output folder of a block's run, and create its input files."""
    (folder / "1percent.txt").write_text("n01440764_0.jpg\nn01443537_0.jpg\n")  # as published
    for name in re.findall(r"CHECKPOINT\.DIR=([\w/]+)|linear .*--out ([\w/]+)", text):
        shutil.rmtree(folder / "".join(name), ignore_errors=True)
    words = re.findall(r"paper/results\.py .*", text)
    for name, (column, row) in RUNS.items():
        if name in " ".join(words).split() and not (folder / name / "metrics.json").is_file():
            shutil.rmtree(folder / name, ignore_errors=True)
            made = finished_runs.pretrained(folder / f"{name}_pretrain", row=row)
            finished_runs.measured(folder / name, made, column=column)


def furnish(folder: Path, page: str, checkpoint: Path) -> Path:
    """Create the files behind a page's placeholders and return the folder."""
    for name, make in (DEFAULT | CONTENT.get(page, {})).items():
        if make is not None:
            make(folder / name)
    for name in CHECKPOINTS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(checkpoint)
    return folder
