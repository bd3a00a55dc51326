"""Read a file of weights, whatever wrote it, as nested dictionaries of tensors on the CPU."""

from __future__ import annotations

import _codecs
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pirl_plugin.checkpoints.names import to_torchvision
from pirl_plugin.checkpoints.verify import check_sums

if TYPE_CHECKING:
    from collections.abc import Callable

# What a pickle of numpy arrays and dictionaries needs, under numpy 1 and 2: nothing that runs code.
_SAFE = {
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}
_SHARDS = {"shard_list": "shards", "shard": "shards", "slice_list": "slices", "slice": "slices"}
_SUFFIXES = (".torch", ".pth", ".pkl", ".safetensors")


class SeveralFilesError(ValueError):
    """A checkpoint is in parts, each in a file of its own, as of the host's sharded training."""


class UntrustedPickleError(ValueError):
    """Safe loading refuses a file. The message names the Python API's and the commands' option."""

    def __init__(self, found: str, option: str = "add --trust-pickle (trust_pickle=True)") -> None:
        super().__init__(
            f"{found}. If you trust who wrote the file, {option}, which lets it run code"
        )
        self.found = found

    def with_option(self, option: str) -> UntrustedPickleError:
        """The same, with another way to trust the file."""
        return UntrustedPickleError(self.found, option)


def read_checkpoint(path: Path, trust_pickle: bool = False) -> Mapping[str, object]:
    """Read a checkpoint of torch, a Detectron2 pickle or a safetensors file.

    Args:
        path: its format is recognised by its content. Tensors saved on a GPU come to the CPU.
        trust_pickle: run the code in the file if torch's safe loading refuses it. Only for files
            whose writer you trust.

    Returns:
        The dictionary in the file; Detectron2's names are translated to torchvision's.

    Raises:
        FileNotFoundError: no such file.
        IsADirectoryError: a folder.
        UntrustedPickleError: it holds objects that safe loading refuses.
        ValueError: damaged, not a checkpoint, or in parts.
    """
    check_is_file(path)
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise ValueError(f"{path} is empty: copy it again")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        elif start[:1] == b"\x80" and (arrays := _read_arrays(path)) is not None:
            content = arrays
        else:
            check_sums(path)
            safe = torch.serialization.safe_globals(_numpy_globals())
            with safe, warnings.catch_warnings():
                # Of TorchScript's files: our own sentence says what is wrong with them.
                warnings.filterwarnings("ignore", "'torch.load' received|`torch.jit.load`")
                content = torch.load(path, map_location="cpu", weights_only=not trust_pickle)
    except Exception as error:  # a damaged pickle can raise anything
        raise _refusal(path, error) from error
    if isinstance(content, torch.nn.Module):
        content = content.state_dict()
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}: expected a dictionary")
    kind = content.get("type")
    if isinstance(kind, str) and kind in _SHARDS:
        raise SeveralFilesError(
            f"{path} is a checkpoint in {_SHARDS[kind]} (type '{kind}'): join them first with "
            f"VISSL's extra_scripts/convert_sharded_checkpoint.py"
        )
    return content


def check_is_file(path: Path) -> None:
    """Refuse a checkpoint that is not there, without reading one that is.

    Raises:
        FileNotFoundError: no such file.
        IsADirectoryError: a folder.
    """
    if path.is_dir():
        files = [file for kind in _SUFFIXES for file in sorted(path.glob(f"*{kind}"))]
        example = f": for instance {files[0]}" if files else ", and this one holds none"
        raise IsADirectoryError(f"{path} is a folder: expected a checkpoint's file{example}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: expected a checkpoint")


def _read_arrays(path: Path) -> dict[str, object] | None:
    """Detectron2's pickle of arrays; None where the file is one of torch's older format."""
    with path.open("rb") as file:
        content = _ArrayUnpickler(file).load()
    if isinstance(content, int):  # the number that begins torch's older format
        return None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or "__author__" not in content:
        raise ValueError(
            "a pickle without Detectron2's 'model' and '__author__'; one of Caffe2's first needs "
            "VISSL's extra_scripts/convert_caffe2_to_torchvision_resnet.py"
        )
    return {"model": {to_torchvision(name): torch.from_numpy(a) for name, a in model.items()}}


class _ArrayUnpickler(pickle.Unpickler):
    """Loads dictionaries, numbers, strings and numpy arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in _SAFE:
            raise pickle.UnpicklingError(f"a pickle with a {module}.{name}, not of arrays alone")
        return super().find_class(module, name)


def _numpy_globals() -> list[Callable[..., object] | tuple[Callable[..., object], str]]:
    """Arrays and numbers of numpy, which some converted checkpoints hold; they run no code."""
    types = [np.dtype(t) for t in ("float16", "float32", "float64", "int32", "int64", "bool")]
    functions = {
        "_reconstruct": np.zeros(0).__reduce__()[0],
        "scalar": np.float64(0).__reduce__()[0],
    }
    named = [  # in modules of numpy 1 and 2
        (function, f"numpy.{core}.multiarray.{name}")
        for name, function in functions.items()
        for core in ("core", "_core")
    ]
    return [np.ndarray, np.dtype, _codecs.encode, *(type(t) for t in types), *named]


def _refusal(path: Path, error: Exception) -> ValueError:
    """One sentence for a file that could not be read: what is wrong, and what to do."""
    text = str(error)
    refused = re.search(r"GLOBAL ([A-Za-z_][\w.]*)|with (TorchScript)", text)
    if refused or ("Weights only load failed" in text and zipfile.is_zipfile(path)):
        what = refused[refused.lastindex or 0] if refused else "a part of it"
        found = f"{path} holds more than weights: safe loading refuses {what}"
        return UntrustedPickleError(found)
    if not _may_be_one(path):
        return ValueError(
            f"{path} is no checkpoint: expected a file of torch, of Detectron2, or of safetensors, "
            f"whose name ends in .safetensors; give the file that a run wrote"
        )
    reason = re.search(r"WeightsUnpickler error: (.+)", text)  # what follows torch's advice
    first = reason[1] if reason else re.split(r"\.\s|\n", text.strip())[0]
    named = f"{type(error).__name__}: {first[:200]}".removesuffix(": ")
    return ValueError(
        f"{path} cannot be read as a checkpoint of torch, Detectron2 or safetensors: it is damaged "
        f"or something else; copy it again ({named})"
    )


def _may_be_one(path: Path) -> bool:
    """Whether a file begins as a checkpoint does and, if it is a whole archive, is one of torch."""
    with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())
    with path.open("rb") as file:
        start = file.read(2)
    return path.suffix == ".safetensors" or start == b"PK" or start[:1] == b"\x80"
