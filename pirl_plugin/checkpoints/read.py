"""Read checkpoints without running code in them, and other files that VISSL runs leave."""

from __future__ import annotations

import _codecs
import argparse
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file

from pirl_plugin.system.failures import Refused

SECTION = "pirl_plugin"
"""Key for this plugin's data in VISSL checkpoints, among the states of VISSL's hooks."""
RUN_CONFIG = "train_config.yaml"
_NAME = re.compile(
    r"model_(?P<final>final_checkpoint_)?(?P<kind>phase|iteration)(?P<number>\d+)\.torch"
)
# Types and functions that run no code: numpy arrays and numbers, and scripts' options.
_NUMBERS = ("float16", "float32", "float64", "int32", "int64", "bool")
_SAFE_TYPES: list[Any] = [np.ndarray, np.dtype, _codecs.encode, argparse.Namespace]
_SAFE_TYPES += [type(np.dtype(name)) for name in _NUMBERS]
# pickle calls a function for an array, and one for a number.
_ARRAY = np.zeros(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # in numpy 1 and 2
    _SAFE_TYPES += [(_ARRAY, f"{_module}._reconstruct"), (_SCALAR, f"{_module}.scalar")]


def read_checkpoint(path: Path, mapped: bool = False) -> Mapping[str, Any]:
    """Read a torch checkpoint or a safetensors file to the CPU.

    Args:
        path: the file.
        mapped: leave torch's tensors on disk, and their checksums unverified.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is a folder, damaged or not a checkpoint, or safe loading refuses it.
    """
    try:
        if is_safetensors(path):
            return load_file(path)
        if not mapped:
            verify_checksums(path)
        # torch's older format cannot be mapped into memory.
        mapped = mapped and zipfile.is_zipfile(path)
        with torch.serialization.safe_globals(_SAFE_TYPES):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        if not isinstance(content, Mapping):
            raise TypeError(f"it contains a {type(content).__name__}, not a dictionary")
        return content
    except IsADirectoryError:
        raise Refused(
            f"{path} is a folder. Choose a file in it, such as {path / 'checkpoint.torch'}."
        ) from None
    except OSError:  # such as a missing file
        raise
    except Exception as error:  # a damaged pickle can raise anything
        remedy = "Copy it again."
        if isinstance(error, pickle.UnpicklingError):
            remedy += (
                " If it contains more than weights, and you trust its author, load it with "
                "torch.load(FILE, weights_only=False), which runs the code in it, and save only "
                "the state dictionary."
            )
        raise Refused(
            f"{path} is damaged or not a checkpoint ({_first_sentence(error)}). {remedy}"
        ) from error


def is_safetensors(path: Path) -> bool:
    """Return whether a file begins like a safetensors file: with the size of a JSON header."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def verify_checksums(path: Path) -> None:
    """Check every byte in a file from ``torch.save`` by CRC-32, which torch does not do.

    Raises:
        ValueError: a record is damaged; the message names the record, but not the path.
    """
    if not zipfile.is_zipfile(path):  # torch's older format has none
        return
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.serialization.set_crc32_options(False) leaves the sums out.
            summed = any(map(attrgetter("CRC"), archive.infolist()))
            broken = archive.testzip() if summed else None
    except Exception as error:  # a damaged record's name or header
        raise Refused(f"its checksums cannot be compared ({error})") from error
    if broken is not None:
        raise Refused(f"record {broken} does not match its checksum")


def _first_sentence(error: Exception) -> str:
    message = str(error).strip()
    # torch's message begins with advice to load the file without protection.
    after_advice = re.search(r"WeightsUnpickler error: (.+)", message)
    first = re.split(r"\.\s|\n", after_advice[1] if after_advice else message)[0]
    return f"{type(error).__name__}: {first[:200]}".removesuffix(": ")


@dataclass(frozen=True)
class CheckpointName:
    """A checkpoint name in VISSL.

    Attributes:
        kind: ``phase`` after an epoch, ``iteration`` within one.
        number: the number of the epoch, from 0, or the step.
        is_final: whether this is a finished run's last checkpoint.

    Example:
        >>> str(CheckpointName("iteration", 1200)), str(CheckpointName("phase", 9, is_final=True))
        ('model_iteration1200.torch', 'model_final_checkpoint_phase9.torch')
        >>> CheckpointName.parse("model_phase9.torch")
        CheckpointName(kind='phase', number=9, is_final=False)
    """

    kind: str
    number: int
    is_final: bool = False

    def __str__(self) -> str:
        return f"model_{'final_checkpoint_' if self.is_final else ''}{self.kind}{self.number}.torch"

    @classmethod
    def parse(cls, name: str) -> CheckpointName | None:
        """Parse a file name; return None if it is not a VISSL checkpoint name."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(match["kind"], int(match["number"]), match["final"] is not None)


def final_checkpoint(folder: Path) -> Path | None:
    """Return a finished run's last checkpoint; None if there is none.

    The name is enough, because this plugin names a checkpoint only once it is complete.
    """
    for path in folder.glob("model_*.torch"):
        name = CheckpointName.parse(path.name)
        if name is not None and name.is_final:
            return path
    return None


def section_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return this plugin's data in a checkpoint's content, or an empty dictionary."""
    hooks = (content.get("classy_state_dict") or {}).get("hooks") or {}
    section: dict[str, Any] = hooks.get(SECTION) or {}
    return section


def read_config(file: Path) -> dict[str, Any]:
    """Read a configuration that VISSL has written."""
    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml, 10 times as fast
    config: dict[str, Any] = yaml.load(file.read_text("utf-8"), Loader=safe)
    return config
