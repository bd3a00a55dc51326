"""Features of a folder of classes of any size, read a batch at a time."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from pirl_plugin.data.decode import UnreadableImageError, decode_image
from pirl_plugin.data.paths import class_folders
from pirl_plugin.data.source import PIRLDiskDataset
from pirl_plugin.evaluation.features import centre_crop, trunk_features
from pirl_plugin.models.resnet import PIRLResNet

UNREADABLE = -1


class LabelledCrops(Dataset[tuple[Tensor, int]]):
    """Centre crops of ``folder/<class>/*`` and their classes, by the order of the classes' names.

    An image that cannot be read has the class −1.

    Args:
        folder: with a subfolder for each class.
        size: side of the crops, pixels.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it holds fewer than two images, or no subfolders.
    """

    def __init__(self, folder: Path, size: int) -> None:
        source = PIRLDiskDataset({"DATA": {"TRAIN": {}}}, "pirl_disk_folder", str(folder), "TRAIN")
        self.classes = class_folders(str(folder))
        if not self.classes:
            raise ValueError(
                f"{folder} has no subfolders; expected one for each class: "
                f"{Path(folder, 'CLASS', 'IMAGE')}"
            )
        self._source = source
        self._labels = source.get_labels()
        self._size = size

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = Path(self._source.path_of(index))
        try:
            image = decode_image(path.read_bytes())
        except (OSError, UnreadableImageError):
            return torch.zeros(3, self._size, self._size, dtype=torch.uint8), UNREADABLE
        return centre_crop(image, self._size), int(self._labels[index])


def labelled_features(
    trunk: PIRLResNet, crops: LabelledCrops, batch: int, workers: int, device: torch.device
) -> tuple[Tensor, Tensor, int]:
    """Pooled res5 features of a folder.

    Args:
        trunk: in evaluation mode, on ``device``.
        crops: the images.
        batch: images at a time.
        workers: processes that decode them; 0 for none.
        device: where the trunk is.

    Returns:
        float32 ``(N, D)`` and int64 ``(N,)``, both on the CPU, and how many images could not be
        read and are left out.
    """
    loader = DataLoader(
        crops, batch, num_workers=workers, multiprocessing_context="forkserver" if workers else None
    )
    features, labels = [], []
    for images, classes in tqdm(loader, desc="features", unit=" batches", mininterval=5):
        features.append(trunk_features(trunk, images.to(device), batch).cpu())
        labels.append(classes)
    found, classes = torch.cat(features), torch.cat(labels)
    readable = classes != UNREADABLE
    return found[readable], classes[readable], int((~readable).sum())
