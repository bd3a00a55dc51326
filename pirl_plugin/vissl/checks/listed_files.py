"""A look at some files that a list names, before a run: are they there at all?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.vissl.checks.refusal import refuse
from pirl_plugin.vissl.checks.sources import sources_of, splits_of
from pirl_plugin.vissl.hooks.run_settings import RunSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from vissl.config import AttrDict

SAMPLE = 200  # files


def missing(file_of: Callable[[int], str], number: int) -> list[str]:
    """Those of up to :data:`SAMPLE` evenly spaced files that are not files that can be read.

    Args:
        file_of: path of the file that holds an image.
        number: of images.

    Example:
        >>> missing(["/nowhere/1.jpg", __file__].__getitem__, 2)
        ['/nowhere/1.jpg']
    """
    paths = [file_of(row) for row in evenly_spaced(number, SAMPLE)]
    return [path for path in paths if not (os.path.isfile(path) and os.access(path, os.R_OK))]


def check_listed_files(config: AttrDict) -> None:
    """Refuse data whose files are not there: a list's, or those that annotations name.

    A folder's files were found by looking into it.

    Raises:
        SystemExit: more of a sample are missing than ``HOOKS.PIRL_RUN.max_unreadable``.
    """
    from pirl_plugin.images.names import DISK_FOLDER
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    if not is_ours(config):
        return
    try:
        share = RunSettings.from_config(config).max_unreadable
    except ValueError as error:
        refuse(f"config.{error}", error)
    for split in splits_of(config):
        for source, path in sources_of(config, split):
            if source == DISK_FOLDER:
                continue
            try:
                data = PIRLDiskDataset(config, source, path, split)
            except (OSError, ValueError) as error:
                refuse(str(error), error)
            gone, looked_at = missing(data.source.file_of, len(data)), min(SAMPLE, len(data))
            if len(gone) > share * looked_at:
                refuse(
                    f"config.DATA.{split}.DATA_PATHS = {path}: expected files that "
                    f"exist, and {len(gone)} of {looked_at} looked at do not, such as {gone[0]}; "
                    f"mount their folder, or correct the paths (REMOVE_IMG_PATH_PREFIX and "
                    f"NEW_IMG_PATH_PREFIX of config.DATA.{split} change their beginning)"
                )
