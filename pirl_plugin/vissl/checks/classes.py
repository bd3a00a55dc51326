"""Checks of classes before a run: those of folders, lists and annotations, and the classifier's."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pirl_plugin.utils.console import put
from pirl_plugin.vissl.checks.refusal import refuse
from pirl_plugin.vissl.checks.sources import splits_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from vissl.config import AttrDict


@dataclass
class _Found:
    """The classes of a run's splits.

    Attributes:
        folders: split -> the folder whose subfolders are classes, and their names.
        highest: folder of annotations and split -> their highest label.
        numbers: split of annotations -> their folder, and the number of each class that has a name.
    """

    folders: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    highest: dict[tuple[str, str], int] = field(default_factory=dict)
    numbers: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)

    def count(self) -> int | None:
        """How many classes there are; None where no split has labels."""
        counts = [len(names) for _, names in self.folders.values()]
        return max([*counts, *(label + 1 for label in self.highest.values())], default=None)


def check_classes(config: AttrDict) -> None:
    """Refuse classes, of folders, lists or annotations, that a classifier cannot be trained on.

    Fewer folders than ``MODEL.HEAD.NUM_CLASSES`` are possible, and named in a line on stderr.

    Raises:
        SystemExit: the test images' classes are not the training images', so that their numbers
            would mean other classes; or there are more classes than ``MODEL.HEAD.NUM_CLASSES``;
            or no classes can be read off a list's paths; or labels are of another source.
    """
    found = _find(config)
    _check_folders(config, found)
    _check_same(found)
    expected = config.MODEL.HEAD.get("NUM_CLASSES")
    if expected is not None:
        _check_meter(config, expected, found.count())
        _check_enough(expected, found)
        _name_fewer(expected, found)


def _find(config: AttrDict) -> _Found:
    from pirl_plugin.images.sources.paths import class_folders

    found = _Found()
    for split in splits_of(config):
        _check_label_source(config, split)
        try:
            folder, labels, named = _labelled(config, split)
        except (OSError, ValueError) as error:
            refuse(str(error), error)
        if folder and labels is None:
            found.folders[split] = (folder, class_folders(folder))
        elif folder and labels is not None and labels.ndim == 1:
            found.highest[folder, split] = int(labels.max())
            found.numbers[split] = (folder, named)
    return found


def _check_folders(config: AttrDict, found: _Found) -> None:
    """Refuse images beside the folders of classes, and folders of fewer than two classes."""
    from pirl_plugin.images.names import DISK_FOLDER
    from pirl_plugin.images.sources.paths import check_all_in_classes

    for split, (folder, _) in found.folders.items():
        if list(config.DATA[split].LABEL_SOURCES) == [DISK_FOLDER]:
            try:
                check_all_in_classes(folder)
            except ValueError as error:
                refuse(f"config.DATA.{split}.DATA_PATHS: {error}", error)
    for split, (folder, names) in found.folders.items():
        if len(names) < 2:
            refuse(
                f"config.DATA.{split}.DATA_PATHS: {folder} has {len(names)} subfolders: expected "
                f"one for each of two classes or more, whose images it holds; name such a folder"
            )


def _check_same(found: _Found) -> None:
    """Refuse test images of other classes than the training images."""
    if len(found.folders) == 2:
        (train, trained), (test, tested) = found.folders["TRAIN"], found.folders["TEST"]
        odd = sorted(set(trained) ^ set(tested))
        if odd:
            refuse(
                f"{train} and {test} have {len(trained)} and {len(tested)} subfolders: expected "
                f"the same classes in both, and '{odd[0]}' is in one alone; an empty subfolder "
                f"will do"
            )
    elif found.numbers:
        of_folders = {
            split: (folder, {name: number for number, name in enumerate(names)})
            for split, (folder, names) in found.folders.items()
        }
        _check_numbers(found.numbers | of_folders)


def _check_meter(config: AttrDict, expected: int, count: int | None) -> None:
    """Refuse a top-k of more classes than there are; ``count`` is of the data."""
    top = max(config.METERS.get("accuracy_list_meter", {}).get("topk_values") or [1])
    if expected >= top or "accuracy_list_meter" not in config.METERS.names:
        return
    more = f", or config.MODEL.HEAD.NUM_CLASSES={count}" if count and count >= top else ""
    if count is None:
        more = f", or config.MODEL.HEAD.NUM_CLASSES={top} or more"
    refuse(
        f"config.METERS.accuracy_list_meter.topk_values: of {expected} classes there is no "
        f"top-{top}: expected at most {expected}; set "
        f"config.METERS.accuracy_list_meter.topk_values=[1]{more}"
    )


def _check_enough(expected: int, found: _Found) -> None:
    """Refuse more classes than the classifier tells apart."""
    for folder, names in found.folders.values():
        if len(names) > expected:
            refuse(
                f"config.MODEL.HEAD.NUM_CLASSES = {expected}: expected at least {len(names)}, as "
                f"{folder} has {len(names)} subfolders; set "
                f"config.MODEL.HEAD.NUM_CLASSES={len(names)}"
            )
    for (folder, split), label in found.highest.items():
        if label >= expected:
            refuse(
                f"config.MODEL.HEAD.NUM_CLASSES = {expected}: expected at least {label + 1}, as "
                f"the labels of {split} in {folder} go up to {label}; set "
                f"config.MODEL.HEAD.NUM_CLASSES={label + 1}"
            )


def _name_fewer(expected: int, found: _Found) -> None:
    """Say, once for both splits, that the classifier has outputs of no class."""
    for folder, names in list(found.folders.values())[:1]:
        if len(names) < expected:
            put(
                f"pirl_plugin: config.MODEL.HEAD.NUM_CLASSES = {expected}: {folder} has "
                f"{len(names)} subfolders; config.MODEL.HEAD.NUM_CLASSES={len(names)} trains no "
                f"outputs beyond these\n",
                sys.stderr,
            )


def _check_numbers(numbers: dict[str, tuple[str, dict[str, int]]]) -> None:
    """Refuse classes that have other numbers in the test images; of each split, its folder too."""
    if len(numbers) < 2:
        return
    (train, trained), (test, tested) = numbers["TRAIN"], numbers["TEST"]
    names = {number: name for name, number in trained.items()}
    for name, number in sorted(tested.items()) if trained else ():
        if trained.get(name, number) == number and names.get(number, name) == name:
            continue
        other = f"'{names[number]}'" if number in names else f"it as class {trained[name]}"
        refuse(
            f"{test} has '{name}' as class {number}, and {train} has {other}: expected the same "
            f"numbers in both; prepare both from folders with the same subfolders, of which some "
            f"may be empty"
        )


def _check_label_source(config: AttrDict, split: str) -> None:
    """Refuse labels that would be read with another of our sources than their images."""
    from pirl_plugin.images.names import SOURCES

    images, labels = list(config.DATA[split].DATA_SOURCES), list(config.DATA[split].LABEL_SOURCES)
    if images != labels and all(source in SOURCES for source in labels + images) and labels:
        refuse(
            f"config.DATA.{split}.LABEL_SOURCES = {labels}: expected {images}, the source of the "
            f"images; set config.DATA.{split}.LABEL_SOURCES=[{','.join(images)}]"
        )


def _labelled(
    config: AttrDict, split: str
) -> tuple[str, NDArray[np.integer] | None, dict[str, int]]:
    """Folder of the classes' folders and None; or of annotations, labels and their names; or ''."""
    from vissl.data.dataset_catalog import get_data_files

    from pirl_plugin.images.names import DISK_FOLDER, SOURCES
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    sources = list(config.DATA[split].LABEL_SOURCES)
    if len(sources) != 1 or sources[0] not in SOURCES:
        return "", None, {}
    (path,), _ = get_data_files(split, config.DATA)
    if sources == [DISK_FOLDER]:
        return path, None, {}
    data = PIRLDiskDataset(config, sources[0], path, split)
    root = data.class_root()
    if root is not None:
        return root, None, {}
    return path, data.get_labels(), data.source.class_numbers()
