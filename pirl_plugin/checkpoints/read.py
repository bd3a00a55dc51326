"""Read files of weights from several programs, without running code in them."""

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

from pirl_plugin.system.failures import Refused

# Types and functions that run no code: numpy's arrays and numbers, and the options of scripts.
_NUMBERS = ("float16", "float32", "float64", "int32", "int64", "bool")
_SAFE_TYPES: list[Any] = [np.ndarray, np.dtype, _codecs.encode, argparse.Namespace]
_SAFE_TYPES += [type(np.dtype(name)) for name in _NUMBERS]
# pickle calls a function for an array, and one for a number.
_ARRAY = np.zeros(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # of numpy 1 and 2
    _SAFE_TYPES += [(_ARRAY, f"{_module}._reconstruct"), (_SCALAR, f"{_module}.scalar")]


def read_checkpoint(path: Path, trust_pickle: bool = False) -> Mapping[str, Any]:
    """Read a checkpoint of torch, or a safetensors file, to the CPU.

    Args:
        path: the file; a safetensors file ends in ``.safetensors``.
        trust_pickle: run the code in the file if torch's safe loading refuses it. Use it only if
            you trust the writer of the file.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it is a folder.
        ValueError: it is damaged, is not a checkpoint, or safe loading refuses it.
    """
    content: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content = load_file(path)
        else:
            check_sums(path)
            with torch.serialization.safe_globals(_SAFE_TYPES):
                content = torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except OSError:  # no such file, or a folder
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise Refused(
            f"{path} cannot be read as a checkpoint of torch or safetensors: it is damaged, or "
            f"holds more than weights ({_first_sentence(error)}); copy it again or, if you trust "
            f"its writer, give --trust-pickle, which runs its code"
        ) from error
    if isinstance(content, torch.nn.Module):  # a whole model, pickled
        content = content.state_dict()
    if not isinstance(content, Mapping):
        raise Refused(f"{path} holds a {type(content).__name__}: expected a dictionary")
    return content


def open_checkpoint(path: Path) -> Mapping[str, Any]:
    """Open a file of ``torch.save`` without reading its tensors, which stay on the disk.

    Raises:
        ValueError: it is empty, truncated or something else; the message does not have the path.
    """
    try:
        mapped = zipfile.is_zipfile(path)  # torch's older format cannot be mapped
        with torch.serialization.safe_globals(_SAFE_TYPES):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # a damaged file can raise anything
        raise Refused(f"it cannot be loaded ({_first_sentence(error)})") from error
    if not isinstance(content, Mapping):
        raise Refused(f"it holds a {type(content).__name__}: expected a dictionary")
    return content


def check_sums(path: Path) -> None:
    """Check every byte of a file of ``torch.save`` by its CRC-32, which torch does not do.

    Raises:
        ValueError: a record differs; the message has its name, but not the path.
    """
    if not zipfile.is_zipfile(path):  # torch's older format has none
        return
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.serialization.set_crc32_options(False) leaves the sums out.
            summed = any(record.CRC for record in archive.infolist())
            broken = archive.testzip() if summed else None
    except Exception as error:  # a damaged record's name or header
        raise Refused(f"its checksums cannot be compared ({error})") from error
    if broken is not None:
        raise Refused(f"its record {broken} has another checksum than when it was saved")


def _first_sentence(error: Exception) -> str:
    message = str(error).strip()
    # torch's message begins with advice to load the file without the protection.
    after_advice = re.search(r"WeightsUnpickler error: (.+)", message)
    first = after_advice[1] if after_advice else re.split(r"\.\s|\n", message)[0]
    return f"{type(error).__name__}: {first[:200]}".removesuffix(": ")
