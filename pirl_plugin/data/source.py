"""The data source of VISSL that reads each file once and decodes it once."""

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from PIL import Image

from pirl_plugin.data.annotated import ANNOTATED, ANNOTATED_WANTED
from pirl_plugin.data.decode import UnreadableImageError, decode_image
from pirl_plugin.data.names import DISK_FILELIST, DISK_FOLDER, PIRL_TRANSFORMS
from pirl_plugin.data.paths import IMAGE_EXTENSIONS, PathTable, class_folders, find_images

_GREY = 128
_MEND = "point config.DATA.{split}.DATA_PATHS=[DIR] at {wanted}"
_WANTED = {
    DISK_FOLDER: f"a folder of images ({', '.join(IMAGE_EXTENSIONS)}), in subfolders or not",
    DISK_FILELIST: "a .npy array of path strings or a text file with one path a line",
    **ANNOTATED_WANTED,
}


class SourceImage(NamedTuple):
    """A decoded image and what its random draws are keyed on (with its row in the data set).

    Attributes:
        pixels: uint8 (3, H, W), RGB.
        seed: the run's seed.
        epoch: number of the pass over the data set.
    """

    pixels: torch.Tensor
    seed: int
    epoch: int


class PIRLDiskDataset:
    """Images of a folder (``pirl_disk_folder``) or of a list (``pirl_disk_filelist``).

    ``pirl_disk_voc07`` and ``pirl_disk_inaturalist18`` are folders that hold lists of their own,
    with labels (:mod:`pirl_plugin.data.annotated`).

    It stands in for VISSL's ``disk_folder`` and ``disk_filelist`` under any transforms: where the
    split's first transform is one of PIRL's it yields ``SourceImage``, elsewhere PIL RGB images.

    A file that cannot be read or decoded yields a grey image and ``False``, and is named with the
    reason in one warning, by whichever loader worker meets it first, in whichever epoch.

    Args:
        cfg: VISSL's configuration; of ``cfg["DATA"][split]`` it reads ``TRANSFORMS``,
            ``MMAP_MODE``, ``DEFAULT_GRAY_IMG_SIZE`` and, for lists, ``REMOVE_IMG_PATH_PREFIX``
            and ``NEW_IMG_PATH_PREFIX``; and it reads ``cfg["SEED_VALUE"]``.
        data_source: one of the names above.
        path: the folder or the list. A list's relative paths are relative to the list's folder.
        split: key of ``cfg["DATA"]``, such as ``TRAIN``.
        dataset_name: for the log only.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or a list cannot be read.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        data_source: str,
        path: str,
        split: str,
        dataset_name: str = "",
    ) -> None:
        options = cfg["DATA"][split]
        self.data_source = data_source
        self.dataset_name = dataset_name
        self.split = split
        self._path = os.fspath(path)
        self._seed = int(cfg.get("SEED_VALUE", 0))
        self._epoch = 0
        self._labels: np.ndarray | None = None
        self._mmap = bool(options.get("MMAP_MODE", True))
        self._prefix_out = str(options.get("REMOVE_IMG_PATH_PREFIX") or "")
        self._prefix_in = str(options.get("NEW_IMG_PATH_PREFIX") or "")
        self._grey_size = int(options.get("DEFAULT_GRAY_IMG_SIZE") or 224)
        transforms = options.get("TRANSFORMS") or [{}]
        self._yields_tensors = transforms[0].get("name") in PIRL_TRANSFORMS
        self._table: Sequence[Any] | None = self._load()
        self._length = len(self._table)
        self._check_length()
        # A bit an image, shared with the loader's workers.
        self._unreadable = torch.zeros(-(-self._length // 8), dtype=torch.uint8).share_memory_()
        logging.info(f"{dataset_name or split}: {self._length} images in {self._path}")

    def __len__(self) -> int:
        return self._length

    def num_samples(self) -> int:
        """Number of images."""
        return self._length

    @property
    def num_unreadable(self) -> int:
        """Number of files found unreadable so far, by this process and its loader workers."""
        return int(np.unpackbits(self._unreadable.numpy()).sum())

    def set_epoch(self, epoch: int) -> None:
        """Say which pass over the data comes next; call it before the workers start."""
        self._epoch = int(epoch)

    def get_image_paths(self) -> list[str]:
        """Paths of all images, in order."""
        return [self.path_of(index) for index in range(self._length)]

    def get_labels(self) -> Sequence[Any]:
        """Class of each image.

        Of a folder: the index of the image's first-level subfolder, by name. Images that lie in the
        folder itself are class 0; if there are both, classes start at 1. Of a list: the index of
        the folder that the image is in, by name, among the folders beside it. Of data sets with
        labels of their own: those, ``(N,)`` or ``(N, classes)``.

        Raises:
            ValueError: for a list whose images' folders do not lie beside each other.
        """
        if self._labels is not None:
            return cast("Sequence[Any]", self._labels)
        if self.data_source == DISK_FILELIST:
            index = {name: label for label, name in enumerate(class_folders(self.list_root()))}
            folders = map(os.path.dirname, self.get_image_paths())
            return [index[os.path.basename(folder)] for folder in folders]
        table = self._opened()
        tops = [head if tail else "" for head, _, tail in (p.partition(os.sep) for p in table)]
        loose = [""] if "" in tops else []
        index = {name: label for label, name in enumerate(loose + class_folders(self._path))}
        return [index[top] for top in tops]

    def list_root(self) -> str:
        """Folder whose subfolders number the classes of a list, also those it names no image of.

        Raises:
            ValueError: if the images' folders do not lie beside each other, or are not there.
        """
        folders = {os.path.dirname(path) for path in self.get_image_paths()}
        above = sorted({os.path.dirname(folder) for folder in folders})
        if len(above) > 1 or not os.path.isdir(above[0]):
            raise ValueError(
                f"{self._path} is a list of paths in {' and '.join(above[:2])}; expected "
                f"DIR/CLASS/IMAGE with one DIR for all, to take their classes from; or give labels "
                f"as config.DATA.{self.split}.LABEL_SOURCES=[disk_filelist] and "
                f"LABEL_PATHS=[FILE.npy]"
            )
        names = {os.path.basename(folder) for folder in folders}
        missing = sorted(names - set(class_folders(above[0])))
        if missing:
            raise ValueError(
                f"{self._path} names images in {os.path.join(above[0], missing[0])}, which is not "
                f"a folder that exists: the paths of a list are relative to the list's own folder"
            )
        return above[0]

    def __getitem__(self, index: int) -> tuple[SourceImage | Image.Image, bool]:
        """Read and decode one image.

        Args:
            index: row, in [0, len).

        Returns:
            ``(image, is_valid)``; the image is grey where it could not be read.
        """
        path = self.path_of(index)
        try:
            with open(path, "rb") as file:
                pixels, is_valid = decode_image(file.read()), True
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path, or undecodable
            self._report(int(index), path, error)
            pixels = torch.full((3, self._grey_size, self._grey_size), _GREY, dtype=torch.uint8)
            is_valid = False
        if self._yields_tensors:
            return SourceImage(pixels, self._seed, self._epoch), is_valid
        return Image.fromarray(pixels.permute(1, 2, 0).numpy()), is_valid

    def __getstate__(self) -> dict[str, Any]:
        """A memory-mapped list is opened again in the worker, not sent to it."""
        state = dict(self.__dict__)
        if not isinstance(self._table, PathTable):
            state["_table"] = None
        return state

    def _opened(self) -> Sequence[Any]:
        if self._table is None:
            self._table = self._load()
        return self._table

    def _load(self) -> Sequence[Any]:
        is_folder = self.data_source == DISK_FOLDER or self.data_source in ANNOTATED
        if is_folder and not os.path.isdir(self._path):
            raise FileNotFoundError(self._complaint("is not a folder that exists"))
        if self.data_source == DISK_FOLDER:
            return cast("Sequence[Any]", PathTable(find_images(self._path)))
        if self.data_source in ANNOTATED:
            try:
                paths, self._labels = ANNOTATED[self.data_source](self._path, self.split)
            except FileNotFoundError as error:
                raise FileNotFoundError(f"{error}: {self._mend()}") from None
            return cast("Sequence[Any]", PathTable(paths))
        if self.data_source != DISK_FILELIST:
            known = ", ".join((DISK_FOLDER, DISK_FILELIST, *ANNOTATED))
            raise ValueError(f"data_source is {self.data_source!r}; expected one of {known}")
        if not os.path.isfile(self._path):
            raise FileNotFoundError(self._complaint("is not a file that exists"))
        return self._load_list()

    def _load_list(self) -> Sequence[Any]:
        if self._path.endswith(".npy"):
            try:
                array = np.load(self._path, mmap_mode="r" if self._mmap else None)
            except (ValueError, OSError, EOFError) as error:
                raise ValueError(
                    self._complaint(f"cannot be read ({error}); an array of Python objects must")
                    + " be saved again as np.array(paths, dtype=str)"
                ) from error
            if array.ndim != 1 or array.dtype.kind not in "US":
                found = f"holds an array of shape {array.shape} and type {array.dtype}"
                raise ValueError(self._complaint(found))
            return cast("Sequence[Any]", array)
        with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
            lines = (line.strip() for line in file)
            return cast("Sequence[Any]", PathTable([line for line in lines if line]))

    def _check_length(self) -> None:
        if self._length < 2:
            found = "no image" if self._length == 0 else "1 image, and at least 2 are needed"
            raise ValueError(self._complaint(f"holds {found}"))

    def _complaint(self, found: str) -> str:
        return f"{self._path} {found}: {self._mend()}"

    def _mend(self) -> str:
        return _MEND.format(split=self.split, wanted=_WANTED[self.data_source])

    def path_of(self, index: int) -> str:
        """Path of one image."""
        entry = self._opened()[index]
        path = os.fsdecode(entry) if isinstance(entry, bytes) else str(entry)
        if self.data_source != DISK_FILELIST:
            return os.path.join(self._path, path)
        if (self._prefix_out or self._prefix_in) and path.startswith(self._prefix_out):
            path = self._prefix_in + path[len(self._prefix_out) :]
        return os.path.join(os.path.dirname(self._path), path)

    def _report(self, index: int, path: str, error: Exception) -> None:
        place, bit = index // 8, 1 << index % 8
        if int(self._unreadable[place]) & bit:
            return
        self._unreadable[place] |= bit
        reason = error if isinstance(error, UnreadableImageError) else f"cannot be read: {error}"
        logging.warning(f"Image {index}, {path}: {reason}. A grey image takes its place.")


def check_source(cfg: Mapping[str, Any], data_source: str, path: str, split: str) -> None:
    """Complain as ``PIRLDiskDataset`` would, without listing a folder that holds enough.

    Raises:
        FileNotFoundError: if ``path`` does not exist or is of the other kind.
        ValueError: if it holds fewer than two images, or a list cannot be read.
    """
    is_folder = data_source == DISK_FOLDER and os.path.isdir(path)
    if not is_folder or len(list(islice(find_images(path), 2))) < 2:
        PIRLDiskDataset(cfg, data_source, path, split)
