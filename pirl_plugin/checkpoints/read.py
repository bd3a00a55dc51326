"""Read a file of weights, of any of several programs, without running code in it."""

from __future__ import annotations

import _codecs
import argparse
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch


def read_checkpoint(path: Path, trust_pickle: bool = False) -> Mapping[str, Any]:
    """Read a checkpoint of torch, or a safetensors file, to the CPU.

    Args:
        path: a file of safetensors ends in ``.safetensors``.
        trust_pickle: run the code in the file if torch's safe loading refuses it. Only for files
            whose writer you trust.

    Raises:
        FileNotFoundError: no such file.
        IsADirectoryError: a folder.
        ValueError: damaged, not a checkpoint, or refused by safe loading.
    """
    content: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content = load_file(path)
        else:
            check_sums(path)
            with torch.serialization.safe_globals(_numpy_globals()):
                content = torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except OSError:  # no such file, or a folder
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(
            f"{path} cannot be read as a checkpoint of torch or safetensors: it is damaged, or "
            f"holds more than weights ({_first_sentence(error)}); copy it again or, if you trust "
            f"its writer, give it to pirl-plugin export with --trust-pickle, which runs its code"
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}: expected a dictionary")
    return content


def open_checkpoint(path: Path) -> dict[str, Any]:
    """Open a checkpoint of the host without reading its tensors, which stay on the disk.

    Raises:
        ValueError: it is empty, cut short or something else; says which, without the path.
    """
    try:
        mapped = zipfile.is_zipfile(path)  # torch's older format cannot be mapped
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a damaged file can raise anything
        raise ValueError(f"it cannot be loaded ({_first_sentence(error)})") from error
    if not isinstance(content, Mapping) or "classy_state_dict" not in content:
        raise ValueError("it holds no 'classy_state_dict', so no run can go on from it")
    return dict(content)


def check_sums(path: Path) -> None:
    """Compare every byte of a file of ``torch.save`` with its CRC-32, which torch does not do.

    Raises:
        ValueError: a record differs; names it, without the path.
    """
    if not zipfile.is_zipfile(path):  # torch's older format has none
        return
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.serialization.set_crc32_options(False) leaves the sums out.
            summed = any(record.CRC for record in archive.infolist())
            broken = archive.testzip() if summed else None
    except Exception as error:  # a damaged record's name or header
        raise ValueError(f"its checksums cannot be compared ({error})") from error
    if broken is not None:
        raise ValueError(f"its record {broken} has another checksum than when it was saved")


def _numpy_globals() -> list[Any]:
    """Return what runs no code: numpy's arrays and numbers, and the options of a script."""
    dtypes = [
        type(np.dtype(t)) for t in ("float16", "float32", "float64", "int32", "int64", "bool")
    ]
    array, number = np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]
    named = [  # in modules of numpy 1 and 2
        (function, f"numpy.{core}.multiarray.{name}")
        for function, name in ((array, "_reconstruct"), (number, "scalar"))
        for core in ("core", "_core")
    ]
    return [np.ndarray, np.dtype, _codecs.encode, argparse.Namespace, *dtypes, *named]


def _first_sentence(error: Exception) -> str:
    text = re.search(r"WeightsUnpickler error: (.+)", str(error))  # what follows torch's advice
    first = text[1] if text else re.split(r"\.\s|\n", str(error).strip())[0]
    return f"{type(error).__name__}: {first[:200]}".removesuffix(": ")
