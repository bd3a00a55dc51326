"""Shell blocks in README and guides, and folders with the files they name.

Blocks run as printed: a placeholder such as ``IMAGENET`` is a path in the page's folder, and so is
``extra_scripts``. The module ``small`` adds arguments that shorten commands.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.helpers import finished_runs
from tests.helpers.own_parts import write_own_parts
from tests.walk import tiny
from tests.walk.shell import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "getting_started.md",
    ROOT / "docs" / "speed.md",
    # detection.md needs Detectron2: `-m detectron2` runs its commands.
    *(page for page in sorted((ROOT / "docs/guides").glob("*.md")) if page.stem != "detection"),
]
NOT_RUN = "torchvision.datasets import ImageNet"  # needs ImageNet's archives, 150 GB
LINKED = ("extra_scripts", "docs")  # what a page's folder has from the clone
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
    "experiments": {"DIR": tiny.papers, "VOCdevkit": tiny.voc, "catalog.json": tiny.papers_catalog},
    "export": {"DIR": None},
}
RUNS = {  # finished run for `results.py` -> column, and row of its pre-training
    "runs/linear": ("ImageNet", "PIRL"),
    "runs/linear_jigsaw": ("ImageNet", "Jigsaw"),
    "runs/svm": ("VOC07", "PIRL"),
    "runs/places": ("Places205", "PIRL"),
}
CHECKPOINTS = (
    *("CHECKPOINT", "IN", "OUT/checkpoint.torch"),
    *("model_final_checkpoint_phase199.torch", "model_final_checkpoint_phase799.torch"),
)


def blocks() -> list[tuple[str, int, str]]:
    """Return page, number within the page, and text for each block to run."""
    return [
        (page.stem, number, text)
        for page in PAGES
        for number, text in enumerate(re.findall(r"```bash\n(.*?)```", page.read_text(), re.S))
        if NOT_RUN not in text
    ]


def nodes_of(text: str) -> int:
    """Return how many nodes a block runs on; processes on this machine stand in for them."""
    nodes = re.search(r"--nnodes (\d+)", text)
    return 1 if nodes is None else int(nodes[1])


def prepare(text: str, folder: Path) -> None:
    """Remove the output folder of a block's run, and create its input files."""
    (folder / "1percent.txt").write_text("n01440764_0.jpg\nn01443537_0.jpg\n")  # as published
    write_own_parts(folder)
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
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for name in CHECKPOINTS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(checkpoint)
    return folder
