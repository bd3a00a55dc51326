"""Features of a folder of classes of any size, read a batch at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from pirl_plugin.evaluation.features import (
    IMAGENET_NORMALIZATION,
    Normalization,
    centre_crop,
    trunk_features,
)
from pirl_plugin.images.folders import check_all_in_classes, class_folders, find_images
from pirl_plugin.images.sources import FolderSource
from pirl_plugin.processes import usable_cores

UNREADABLE = -1
VAL_FOLDERS = ("val", "validation")
_MOST_WORKERS = 16
_IMAGES_PER_WORKER = 256  # fewer are decoded in less time than a process takes to start


def val_folder(root: Path) -> Path | None:
    """``root/val`` or ``root/validation``, whichever there is."""
    return next((root / name for name in VAL_FOLDERS if (root / name).is_dir()), None)


def labelled_folders(root: Path) -> tuple[Path, Path]:
    """The training and the test images of ``--data``.

    Raises:
        FileNotFoundError: one of them is missing.
    """
    train, test = root / "train", val_folder(root)
    if not train.is_dir() or test is None:
        missing = "such folder" if not root.is_dir() else "train" if not train.is_dir() else "val"
        raise FileNotFoundError(
            f"--data = {root}: expected a folder with train/CLASS/* and val/CLASS/* (or "
            f"validation/CLASS/*), and there is no {missing}; give the folder above them"
        )
    return train, test


def refuse_shards(folder: Path) -> None:
    """Refuse a folder of tar shards, of which a training run alone can read the images.

    Raises:
        ValueError: it holds tars, and no image.
    """
    if (
        next(folder.glob("*.tar"), None) is not None
        and next(find_images(str(folder)), None) is None
    ):
        raise ValueError(
            f"{folder}: expected images in files of their own, and found tars, which this command "
            f"does not read; give --data DIR, the folder that they were made from"
        )


class LabelledCrops(Dataset[tuple[Tensor, int]]):
    """Centre crops of ``folder/<class>/*`` and their classes, by the order of the classes' names.

    An image that cannot be read has the class −1.

    Args:
        folder: with a subfolder for each class.
        size: side of the crops, pixels.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds no subfolders, no images in them, or images beside them.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._source = FolderSource(folder)
        self.classes = class_folders(str(folder))
        self._labels = self._source.labels().tolist()
        if not self.classes:
            raise ValueError(
                f"{folder}: expected a subfolder of images for each class, "
                f"{Path(folder, 'CLASS', 'IMAGE')}, and there is no such image"
            )
        check_all_in_classes(folder)
        self._size = size

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, is_valid = self._source[index]
        if not is_valid:
            return torch.zeros(3, self._size, self._size, dtype=torch.uint8), UNREADABLE
        return centre_crop(image, self._size), self._labels[index]


def default_workers(images: int) -> int:
    """As many processes as cores, at most 16; fewer for few images, and 0 on one core."""
    workers = min(usable_cores(), _MOST_WORKERS, images // _IMAGES_PER_WORKER)
    return workers if workers > 1 else 0


def labelled_features(
    trunk: nn.Module,
    crops: LabelledCrops,
    batch: int,
    workers: int | None,
    device: torch.device,
    normalize: Normalization = IMAGENET_NORMALIZATION,
    title: str = "features",
) -> tuple[Tensor, Tensor, int]:
    """Pooled res5 features of a folder.

    Args:
        trunk: in evaluation mode, on ``device``.
        crops: the images.
        batch: images at a time.
        workers: processes that decode them; 0 for none, None for :func:`default_workers`.
        device: where the trunk is.
        normalize: as the trunk was trained with.
        title: of the progress bar, which shows images a second and the time left.

    Returns:
        float32 ``(N, D)`` and int64 ``(N,)``, both on the CPU, and how many images could not be
        read and are left out.

    Raises:
        ValueError: none could be read.
    """
    workers = default_workers(len(crops)) if workers is None else workers
    loader = DataLoader(
        crops, batch, num_workers=workers, multiprocessing_context="forkserver" if workers else None
    )
    features, labels = [], []
    interval = 0.5 if sys.stderr.isatty() else 20  # seconds; a line now and then in a log
    with tqdm(total=len(crops), desc=title, unit=" images", mininterval=interval) as bar:
        for images, classes in loader:
            features.append(trunk_features(trunk, images.to(device), batch, normalize).cpu())
            labels.append(classes)
            bar.update(len(classes))
    found, classes = torch.cat(features), torch.cat(labels)
    readable = classes != UNREADABLE
    if not readable.any():
        raise ValueError(
            f"{crops.folder}: expected images that can be read, and none of {len(crops)} could be; "
            f"each is named above"
        )
    return found[readable], classes[readable], int((~readable).sum())
