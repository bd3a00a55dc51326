"""Look at the data itself: can a sample of its files be decoded, and are there enough of them?"""

from __future__ import annotations

import functools
import os
from itertools import islice
from typing import TYPE_CHECKING

from pirl_plugin.images.names import DISK_FOLDER
from pirl_plugin.images.read import read_file
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.vissl.checks.loss_section import loss_section
from pirl_plugin.vissl.checks.parts import check_loss
from pirl_plugin.vissl.checks.refusal import refuse
from pirl_plugin.vissl.checks.sources import sources_of, splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vissl.config import AttrDict

    File = tuple[str, Callable[[], bytes | bytearray]]

_SAMPLE = 8  # files of each source


def check_images(config: AttrDict) -> None:
    """Refuse data of which no file in a sample can be decoded, or that a run cannot be made of.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    for split in splits_of(config):
        for source, path in sources_of(config, split):
            _check_decoding(config, split, source, path)
    _check_number(config)


def _check_decoding(config: AttrDict, split: str, source: str, path: str) -> None:
    from pirl_plugin.images.decode import decode_image

    reason: Exception | None = None
    files = list(_some_files(config, split, source, path))
    for _, read in files:
        try:
            decode_image(read())
        except (OSError, ValueError) as error:
            reason = reason or error
        else:
            return
    if files:
        refuse(
            f"config.DATA.{split}.DATA_PATHS: none of {len(files)} files looked at in {path} can "
            f"be read as an image, the first being {files[0][0]}: {reason}; expected images; point "
            f"config.DATA.{split}.DATA_PATHS=[DIR] at them",
            reason,
        )


def _some_files(config: AttrDict, split: str, source: str, path: str) -> Iterable[File]:
    """Name and reader of some files; a tar's members are read by their source alone."""
    from pirl_plugin.images.sources.paths import find_images, some_images
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    if source == DISK_FOLDER:
        files = some_images(path, _SAMPLE) or [
            os.path.join(path, name) for name in islice(find_images(path), _SAMPLE)
        ]
        return ((file, functools.partial(read_file, file)) for file in files)
    images = PIRLDiskDataset(config, source, path, split).source
    rows = evenly_spaced(len(images), _SAMPLE)
    return [(images.path_of(row), functools.partial(images.read, row)) for row in rows]


def num_images(config: AttrDict) -> int | None:
    """Number of training images; None where a source is not one of this plugin."""
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    data, ours = config.DATA.TRAIN, sources_of(config, "TRAIN")
    if len(ours) < len(data.DATA_SOURCES):
        return None
    count = sum(len(PIRLDiskDataset(config, *pair, "TRAIN")) for pair in ours)
    return min(count, data.DATA_LIMIT) if data.DATA_LIMIT > 0 else count


def _check_number(config: AttrDict) -> None:
    """Count the images only where a key of the run depends on their number."""
    train, machine = config.DATA.TRAIN, config.DISTRIBUTED
    loss = loss_section(config)
    without_replacement = loss is not None and not loss.replacement
    if config.TEST_ONLY or not (without_replacement or train.DROP_LAST):
        return
    count = num_images(config)
    if count is None:
        return
    check_loss(config, count)
    batch = machine.NUM_NODES * machine.NUM_PROC_PER_NODE * train.BATCHSIZE_PER_REPLICA
    if train.DROP_LAST and count < batch:
        refuse(
            f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA = {train.BATCHSIZE_PER_REPLICA}: expected a "
            f"batch over all processes, {batch}, of at most the {count} images, as "
            f"config.DATA.TRAIN.DROP_LAST leaves a smaller one out; set a smaller batch"
        )
