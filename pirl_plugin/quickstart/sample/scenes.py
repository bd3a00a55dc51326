"""A small labelled data set made from nothing, for the quickstart and for tests.

Scenes are drawn by ``surfaces`` and ``landscapes`` and photographed by ``light``. The class
is in the structure alone: colour, light, scale, place, occluders and grain are drawn without regard
to it, so a network has to learn what PIRL teaches, features that colour and crops do not move.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.quickstart.sample import landscapes, surfaces
from pirl_plugin.quickstart.sample.light import Array, Rng, photograph

SCENES: dict[str, Callable[[Rng, int], Array]] = {
    "balls": landscapes.balls,
    "brick_wall": surfaces.brick_wall,
    "city": landscapes.city,
    "flowers": landscapes.flowers,
    "forest": landscapes.forest,
    "mountains": landscapes.mountains,
    "pebbles": surfaces.pebbles,
    "roof_tiles": surfaces.roof_tiles,
    "sea": landscapes.sea,
    "tartan": surfaces.tartan,
}
"""Every class of the data set and its painter, ``(rng, side) -> float32 (side, side, 3)``."""

_SPLITS = ("train", "val")
_MARKER = ".complete"
_VERSION = 1  # goes up whenever the same parameters give other pictures
_QUALITY = 90  # JPEG


def write_sample_dataset(
    out: Path, seed: int = 0, num_train: int = 2000, num_val: int = 400, size: int = 96
) -> None:
    """Write the data set as JPEG files, ``out/{train,val}/<class>/<number>.jpg``.

    The ten classes are balanced to within one image. The same parameters give the same pictures,
    and picture n of a class does not depend on how many are asked for. The files are written into
    a sibling folder that takes the name ``out`` only when it is complete, so a killed run leaves
    nothing half made. A data set that is there already is kept when it was made with the same
    parameters, and replaced otherwise.

    Args:
        out: the folder to make; its parents are made too.
        seed: at least 0; another seed gives other pictures of the same classes.
        num_train: images under ``train``.
        num_val: images under ``val``.
        size: side of the square images, pixels.

    Raises:
        ValueError: for a seed below 0, a size below 16, or fewer images than classes in a split.
        FileExistsError: when ``out`` holds anything else than a data set written by this function.
    """
    counts = dict(zip(_SPLITS, (num_train, num_val), strict=True))
    _check(seed, counts, size)
    out = Path(out).resolve()
    wanted = {"version": _VERSION, "seed": seed, **counts, "size": size}
    if _found(out) == wanted:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        draft = Path(folder) / out.name
        for split, count in counts.items():
            _write_split(draft / split, seed, count, size)
        (draft / _MARKER).write_text(json.dumps(wanted))
        if out.exists():  # an older sample data set, or an empty folder: see _found
            shutil.rmtree(out)
        draft.rename(out)


def sample_scene(name: str, rng: Rng, size: int) -> NDArray[np.uint8]:
    """Draw one scene of the class ``name``, a key of ``SCENES``: uint8 (size, size, 3)."""
    return photograph(rng, SCENES[name](rng, 2 * size), size)


def _write_split(folder: Path, seed: int, count: int, size: int) -> None:
    """Write ``count`` images, dealt to the classes in turn."""
    for place, name in enumerate(SCENES):
        (folder / name).mkdir(parents=True)
        for number in range((count + len(SCENES) - 1 - place) // len(SCENES)):
            rng = np.random.default_rng([seed, _SPLITS.index(folder.name), place, number])
            photo = Image.fromarray(sample_scene(name, rng, size))
            photo.save(folder / name / f"{number:05d}.jpg", quality=_QUALITY)


def _found(out: Path) -> dict[str, int] | None:
    """Return what the marker in ``out`` says, or None; refuse other folders."""
    marker = out / _MARKER
    if marker.is_file():
        return dict(json.loads(marker.read_text()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(
            f"{out} exists and is not a sample data set (it has no {_MARKER}), so it is left as it "
            "is; expected a new or an empty folder: give another one, or move this one away"
        )
    return None


def _check(seed: int, counts: dict[str, int], size: int) -> None:
    if seed < 0:
        raise ValueError(f"seed is {seed}, expected a whole number of at least 0")
    if size < 16:
        raise ValueError(f"size is {size} pixels, expected at least 16: smaller scenes are mush")
    for split, count in counts.items():
        if count < len(SCENES):
            raise ValueError(
                f"num_{split} is {count}, expected at least {len(SCENES)}: one image for each class"
            )
