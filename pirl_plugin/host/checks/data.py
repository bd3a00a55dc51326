"""Checks of data before a run: what is not there, or does not fit, is named in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.host.catalog import LAYOUT
from pirl_plugin.host.checks.refusal import refuse, refuse_tilde

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from vissl.config import AttrDict

_HOSTS_DISK = ("disk_folder", "disk_filelist")  # data sources that read what a path names


def check_data(config: AttrDict) -> None:
    """Refuse, in one sentence and before any process is started, data that cannot be trained on.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files

    from pirl_plugin.data.names import SOURCES
    from pirl_plugin.data.sources.vissl_source import check_source

    for split in splits_of(config):
        data = config.DATA[split]
        sources = data.DATA_SOURCES
        if not any(s in _HOSTS_DISK or s in SOURCES for s in sources):
            continue
        unknown = [n for n in data.DATASET_NAMES if not VisslDatasetCatalog.has_data(n)]
        if not data.DATA_PATHS and unknown:
            catalog = ""
            if unknown[0] in LAYOUT:
                catalog = ", or all data sets at once, with PIRL_DATASETS=DIR in the environment"
            refuse(
                f"config.DATA.{split}.DATA_PATHS = []: expected a path, as no catalog lists "
                f"'{unknown[0]}'; name a folder of images, "
                f"config.DATA.{split}.DATA_PATHS=[DIR]{catalog}"
            )
        paths, _ = get_data_files(split, config.DATA)
        _check_named(split, data, paths)
        for source, path in zip(data.DATA_SOURCES, paths, strict=True):
            if source not in SOURCES:
                continue
            refuse_tilde(f"config.DATA.{split}.DATA_PATHS", path)
            try:
                check_source(config, source, path, split)
            except (OSError, ValueError) as error:
                refuse(str(error), error)


def _check_named(split: str, data: AttrDict, paths: Sequence[object]) -> None:
    """Refuse files that the host's own sources miss only when all is set up, or never miss."""
    from iopath.common.file_io import g_pathmgr

    key = f"config.DATA.{split}.DATA_PATHS" if data.DATA_PATHS else "the catalog of data sets"
    labels = f"config.DATA.{split}.LABEL_PATHS"
    named = [(key, *pair) for pair in zip(data.DATA_SOURCES, paths, strict=True)]
    named += [(labels, *pair) for pair in zip(data.LABEL_SOURCES, data.LABEL_PATHS, strict=False)]
    for where, source, path in named:
        if source in _HOSTS_DISK and isinstance(path, str) and not g_pathmgr.exists(path):
            refuse(
                f"{where} names '{path}', which is not a file or folder that exists: expected "
                f"one; name another"
            )


def check_classes(config: AttrDict) -> None:
    """Refuse classes, of folders, lists or annotations, that a classifier cannot be trained on.

    Raises:
        SystemExit: the test images' classes are not the training images', so that their numbers
            would mean other classes; or there are more classes than ``MODEL.HEAD.NUM_CLASSES``;
            or no classes can be read off a list's paths; or labels are of another source.
    """
    from pirl_plugin.data.names import DISK_FOLDER
    from pirl_plugin.data.sources.paths import check_all_in_classes, class_folders

    folders, highest, numbers = {}, {}, {}
    for split in splits_of(config):
        _check_label_source(config, split)
        try:
            folder, labels, named = _labelled(config, split)
        except (OSError, ValueError) as error:
            refuse(str(error), error)
        if folder and labels is None:
            folders[split] = folder
        elif folder and labels is not None and labels.ndim == 1:
            highest[folder, split] = int(labels.max())
            numbers[split] = (folder, named)
    classes = {split: (folder, class_folders(folder)) for split, folder in folders.items()}
    for split, folder in folders.items():
        if list(config.DATA[split].LABEL_SOURCES) == [DISK_FOLDER]:
            try:
                check_all_in_classes(folder)
            except ValueError as error:
                refuse(f"config.DATA.{split}.DATA_PATHS: {error}", error)
    for split, (folder, found) in classes.items():
        if len(found) < 2:
            refuse(
                f"config.DATA.{split}.DATA_PATHS: {folder} has {len(found)} subfolders: expected "
                f"one for each of two classes or more, whose images it holds; name such a folder"
            )
    if len(classes) == 2:
        (train, trained), (test, tested) = classes["TRAIN"], classes["TEST"]
        odd = sorted(set(trained) ^ set(tested))
        if odd:
            refuse(
                f"{train} and {test} have {len(trained)} and {len(tested)} subfolders: expected "
                f"the same classes in both, and '{odd[0]}' is in one alone; an empty subfolder "
                f"will do"
            )
    elif numbers:
        numbers |= {
            split: (folder, {name: number for number, name in enumerate(found)})
            for split, (folder, found) in classes.items()
        }
        _check_numbers(numbers)
    expected = config.MODEL.HEAD.get("NUM_CLASSES")
    top = max(config.METERS.get("accuracy_list_meter", {}).get("topk_values") or [1])
    if expected is not None and expected < top and "accuracy_list_meter" in config.METERS.names:
        refuse(
            f"config.METERS.accuracy_list_meter.topk_values: of {expected} classes there is no "
            f"top-{top}: expected at most {expected}; set "
            f"config.METERS.accuracy_list_meter.topk_values=[1], or "
            f"config.MODEL.HEAD.NUM_CLASSES={top} or more"
        )
    for folder, found in classes.values():
        if expected is not None and len(found) > expected:
            refuse(
                f"config.MODEL.HEAD.NUM_CLASSES = {expected}: expected at least {len(found)}, as "
                f"{folder} has {len(found)} subfolders; set "
                f"config.MODEL.HEAD.NUM_CLASSES={len(found)}"
            )
    for (folder, split), label in highest.items():
        if expected is not None and label >= expected:
            refuse(
                f"config.MODEL.HEAD.NUM_CLASSES = {expected}: expected at least {label + 1}, as "
                f"the labels of {split} in {folder} go up to {label}; set "
                f"config.MODEL.HEAD.NUM_CLASSES={label + 1}"
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
    from pirl_plugin.data.names import SOURCES

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

    from pirl_plugin.data.names import DISK_FOLDER, SOURCES
    from pirl_plugin.data.sources.vissl_source import PIRLDiskDataset

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


def splits_of(config: AttrDict) -> list[str]:
    """The splits that a run reads."""
    splits = ["TRAIN"] if not config.TEST_ONLY else []
    return splits + (["TEST"] if config.TEST_MODEL else [])
