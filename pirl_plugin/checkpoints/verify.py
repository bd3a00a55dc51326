"""Whether a checkpoint is what was saved: read safely, and compared with its checksums."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import torch

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.checkpoints.host_checkpoint import HostCheckpoint


class DamagedError(ValueError):
    """A checkpoint is not what was saved."""

    stops_training = True  # its text is all that the user needs


def open_checkpoint(path: Path) -> HostCheckpoint:
    """Open a checkpoint of the host without reading its tensors, which stay on the disk.

    Nothing in it is run: it is loaded with ``weights_only=True``.

    Raises:
        DamagedError: it is empty, cut short or something else; says which, without the path.
    """
    try:
        if path.stat().st_size == 0:
            raise DamagedError("it is empty")
        mapped = zipfile.is_zipfile(path)  # torch's older format cannot be mapped
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except DamagedError:
        raise
    except Exception as error:  # a damaged file can raise anything
        first = re.split(r"\.\s|\n", str(error).strip())[0]  # of torch's several sentences
        raise DamagedError(
            f"it cannot be loaded ({type(error).__name__}: {first[:200]})"
        ) from error
    if not isinstance(content, Mapping) or "classy_state_dict" not in content:
        raise DamagedError("it holds no 'classy_state_dict', so no run can go on from it")
    return cast("HostCheckpoint", dict(content))


def check_sums(path: Path) -> bool:
    """Read the whole of a file of ``torch.save`` and compare it with its checksums.

    torch writes a CRC-32 of each tensor but does not look at it when it loads.

    Returns:
        Whether there are checksums: torch's older format has none.

    Raises:
        DamagedError: a record differs; names it, without the path.
    """
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            if not any(record.CRC for record in archive.infolist()):  # torch can leave them out
                return False
            broken = archive.testzip()
    except Exception as error:  # a damaged record's name or header
        raise DamagedError(f"its checksums cannot be compared ({error})") from error
    if broken is not None:
        raise DamagedError(f"its record {broken} has another check sum than when saved")
    return True


def verify(path: Path) -> HostCheckpoint:
    """Open a checkpoint whose every byte that counts is what was saved.

    Raises:
        DamagedError: it is not; says why, without the path.
    """
    content = open_checkpoint(path)
    if not check_sums(path):
        logging.root.info(f"{path} was saved without checksums: taken as it is")
    return content
