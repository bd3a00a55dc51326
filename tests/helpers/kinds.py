"""The same labeled images in every supported format."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image

from pirl_plugin.images.labeled import LabeledImages, open_labeled

KINDS = ("folder", "text", "csv", "tars", "arrow", "parquet")
"""Kinds of data on the disk; :func:`in_memory` makes the same of a library's data set."""

Images = dict[str, list[tuple[str | None, Image.Image]]]
"""Split → label and pixels of each image."""


def gray(level: int) -> Image.Image:
    """Return an image identified by its gray level."""
    return Image.new("RGB", (12, 8), (level, level, level))


def write_kind(kind: str, root: Path, images: Images) -> Path:
    """Write the splits of a data set to a folder and return the folder."""
    root.mkdir(parents=True, exist_ok=True)
    for split, rows in images.items():
        _WRITERS[kind](root, split, rows)
    return root


def path_of(kind: str, root: Path, split: str) -> Path:
    """Return the ``--train`` or ``--val`` path for a split written by ``write_kind``."""
    return root / _PATHS[kind].format(split=split)


def open_kind(kind: str, root: Path, train: str = "train", val: str = "val") -> LabeledImages:
    """Open two splits written by ``write_kind`` as labeled images."""
    paths = [path_of(kind, root, split) for split in (train, val)]
    return open_labeled(train=paths[0], val=paths[1])


def in_memory(rows: list[tuple[str | None, Image.Image]]) -> Any:
    """Return a ``datasets`` data set in memory, with labels as text."""
    import datasets

    columns = {"image": [image for _, image in rows], "label": [label for label, _ in rows]}
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("string"))
    return datasets.Dataset.from_dict(columns, features)


def _folder(root: Path, split: str, rows: Any) -> None:
    for number, (label, image) in enumerate(rows):
        folder = root / split / (label or "")
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:03d}.png")


def _files(root: Path, split: str, rows: Any) -> list[tuple[str, str | None]]:
    (root / "images" / split).mkdir(parents=True)
    files = []
    for number, (label, image) in enumerate(rows):
        path = f"images/{split}/{number:03d}.png"
        image.save(root / path)
        files.append((path, label))
    return files


def _text(root: Path, split: str, rows: Any) -> None:
    lines = [f"{path} {label or ''}".strip() for path, label in _files(root, split, rows)]
    (root / f"{split}.txt").write_text("\n".join(lines))


def _csv(root: Path, split: str, rows: Any) -> None:
    lines = [f"{number},{label or ''},{path}" for number, (path, label) in enumerate(
        _files(root, split, rows)
    )]  # fmt: skip
    (root / f"{split}.csv").write_text("\n".join(["id,label,path", *lines]))


def _tars(root: Path, split: str, rows: Any) -> None:
    (root / split).mkdir()
    for part in (0, 1):
        with tarfile.open(root / split / f"{part}.tar", "w") as tar:
            for number in range(part, len(rows), 2):
                label, image = rows[number]
                file = io.BytesIO()
                image.save(file, "PNG")
                add_member(tar, f"{number:03d}.png", file.getvalue())
                if label is not None:
                    add_member(tar, f"{number:03d}.cls", label.encode())


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to a tar."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _arrow(root: Path, split: str, rows: Any) -> None:
    in_memory(rows).save_to_disk(root / split)


def _parquet(root: Path, split: str, rows: Any) -> None:
    (root / "data").mkdir(exist_ok=True)
    (root / "README.md").write_text("# As a download from the Hub\n")
    in_memory(rows).to_parquet(root / "data" / f"{split}-00000-of-00001.parquet")


_PATHS = {
    "folder": "{split}",
    "text": "{split}.txt",
    "csv": "{split}.csv",
    "tars": "{split}",
    "arrow": "{split}",
    "parquet": "data/{split}-*.parquet",
}
_WRITERS = {
    "folder": _folder,
    "text": _text,
    "csv": _csv,
    "tars": _tars,
    "arrow": _arrow,
    "parquet": _parquet,
}
