"""Shards of one state in a folder: committed by a rename, with checksums, read without pickle."""

from __future__ import annotations

import json
import logging
import pathlib
import pickle
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo

from pirl_plugin.checkpoints.run_folder import MANIFEST
from pirl_plugin.checkpoints.verify import DamagedError
from pirl_plugin.checkpoints.write import check_finite
from pirl_plugin.distributed import gather_objects, on_all_ranks, on_first_rank, rank
from pirl_plugin.files import (
    UNFINISHED,
    atomic_write,
    check_free_space,
    flush_folder,
    remove,
    report_full_disk,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_METADATA = ".metadata"


def _memory_format(kind: object, name: str) -> object:
    """A member of torch's enumeration, as Debian 12's Python 3.11.2 pickles it: by ``getattr``."""
    if kind is not dcp._MEM_FORMAT_ENCODING or name not in dcp._MEM_FORMAT_ENCODING.__members__:
        raise pickle.UnpicklingError(f"it asks for {name}, which metadata of tensors does not")
    return dcp._MEM_FORMAT_ENCODING[name]


# What the metadata of tensors is made of. A pickle of these runs no code.
_CLASSES = {
    **{
        ("torch.distributed.checkpoint.metadata", name): getattr(dcp, name)
        for name in (
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorStorageMetadata",
            "TensorProperties",
            "ChunkStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    },
    ("builtins", "getattr"): _memory_format,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): dict,
    **{("pathlib", n): pathlib.PurePosixPath for n in ("PosixPath", "PurePosixPath")},
    **{("pathlib._local", n): pathlib.PurePosixPath for n in ("PosixPath", "PurePosixPath")},
}


def save_shards(state: Mapping[str, Tensor], folder: Path, needed: int) -> None:
    """Collective: write the shards of all ranks, whole or not at all.

    Args:
        state: names to tensors; those of several ranks are DTensors.
        folder: of these shards alone; what is there is replaced at the end.
        needed: bytes of all ranks together.

    Raises:
        DiskFullError: on all ranks; what was there before is intact.
        NonFiniteStateError: on all ranks, where a rank's part is not finite.
    """
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    local = {name: getattr(tensor, "_local_tensor", tensor) for name, tensor in state.items()}
    on_all_ranks(lambda: check_finite(local, str(folder)))

    def prepare() -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove(unfinished)
        unfinished.mkdir()
        check_free_space(unfinished / "shards", needed)

    on_first_rank(prepare)
    alone = not distributed.is_initialized()
    try:
        checkpoint.save(dict(state), checkpoint_id=str(unfinished), no_dist=alone)
    except checkpoint.CheckpointException as error:  # raised on all ranks; not an Exception
        report_full_disk(unfinished / "shards", needed, error)
        raise RuntimeError(f"{folder} was not written: {error}") from None
    mine = [*unfinished.glob(f"__{rank()}_*"), *([unfinished / _METADATA] if rank() == 0 else [])]
    sums: dict[str, list[int]] = {}
    on_all_ranks(lambda: sums.update((p.name, [p.stat().st_size, _crc(p)]) for p in mine))
    everyones = gather_objects(sums)

    def commit() -> None:
        together = {name: known for part in everyones for name, known in part.items()}
        with atomic_write(unfinished / MANIFEST) as file:
            file.write(json.dumps(together, indent=1).encode())
        before = folder.with_name(f"{UNFINISHED}{folder.name}.before")
        remove(before)
        if folder.exists():
            folder.rename(before)
        unfinished.rename(folder)
        flush_folder(folder.parent)
        remove(before)

    on_first_rank(commit)


def load_shards(state: Mapping[str, Tensor], folder: Path) -> None:
    """Collective: fill the tensors of ``state`` from shards that any number of ranks wrote.

    Raises:
        DamagedError: a shard is not what was saved, or of another shape.
    """
    alone = not distributed.is_initialized()
    try:
        checkpoint.load(dict(state), storage_reader=_Reader(str(folder)), no_dist=alone)
    except checkpoint.CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise DamagedError(f"its shards in {folder} cannot be loaded ({first})") from None


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The names and whole shapes of the tensors in ``folder``.

    Raises:
        DamagedError: the metadata is missing, damaged, or more than metadata of tensors.
    """
    found = _Reader(str(folder)).read_metadata().state_dict_metadata
    return {name: tuple(entry.size) for name, entry in found.items() if hasattr(entry, "size")}


def check_shards(folder: Path) -> None:
    """Compare every shard with its checksum; those of older versions, with their length.

    Raises:
        DamagedError: a file is missing, cut short or changed; names it.
    """
    if not folder.is_dir():
        raise DamagedError(f"its memory bank {folder} is not there: bring it along")
    reader = _Reader(str(folder))
    stored = reader.read_metadata().storage_data
    manifest = folder / MANIFEST
    if not manifest.exists():
        logging.root.info(f"{folder} was saved without checksums: taken as it is")
        ends: dict[str, int] = {}
        for info in stored.values():
            end = info.offset + info.length
            ends[info.relative_path] = max(end, ends.get(info.relative_path, 0))
        _check_files(folder, {name: (end, None) for name, end in ends.items()})
        return
    try:
        known = json.loads(manifest.read_text())
        expected = {str(name): (int(size), int(crc)) for name, (size, crc) in known.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(f"{manifest} cannot be read ({error})") from error
    _check_files(folder, expected)


def _check_files(folder: Path, expected: Mapping[str, tuple[int, int | None]]) -> None:
    for name, (size, crc) in expected.items():
        path = folder / name
        if path.parent != folder or not path.is_file():
            raise DamagedError(f"{path} is missing")
        if crc is None and path.stat().st_size >= size:
            continue
        if path.stat().st_size != size:
            raise DamagedError(f"{path} has {path.stat().st_size} bytes and not {size}")
        if _crc(path) != crc:
            raise DamagedError(f"{path} has another check sum than when saved")


def _crc(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


class _Reader(FileSystemReader):
    """torch's reader, but its metadata is loaded without running anything in it."""

    def read_metadata(self, *args: object, **kwargs: object) -> dcp.Metadata:
        path = Path(self.path) / _METADATA
        try:
            with path.open("rb") as file:
                found = _MetadataUnpickler(file).load()
            entries = found.state_dict_metadata.values()
            tensors = all(isinstance(entry, dcp.TensorStorageMetadata) for entry in entries)
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing") from None
        except Exception as error:  # a damaged pickle can raise anything
            raise DamagedError(f"{path} cannot be read ({error})") from error
        if not tensors:
            raise DamagedError(f"{path} describes more than tensors")
        if getattr(found, "storage_meta", None) is None:
            found.storage_meta = dcp.StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _MetadataUnpickler(pickle.Unpickler):
    """Loads the metadata of tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in _CLASSES:
            return _CLASSES[module, name]
        kind = getattr(torch, name, None) if module == "torch" else None
        if re.fullmatch(r"\w+", name) and isinstance(kind, torch.dtype):
            return kind
        raise pickle.UnpicklingError(
            f"it holds {module}.{name}, which metadata of tensors does not"
        )
