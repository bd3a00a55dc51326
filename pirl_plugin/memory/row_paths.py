"""Which image each row of the memory bank belongs to: a fingerprint of the data set's paths.

A row is an image's place in the data set. The checkpoint keeps a 64-bit hash of each image's path,
8 bytes a row, so that a data set that has changed is recognised and its rows can be found again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

_CHUNK = 65_536  # paths hashed at a time: a chunk's longest path sets its memory
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class RelativePaths(Sequence[str]):
    """Paths below ``root`` without it, so that a data set may be moved; others as they are.

    Each is made when it is asked for: those of 10⁸ images would take 20 GB.

    Args:
        path_of: the path of an image, by its row in the data set.
        rows: of which images.
        root: the folder.

    Example:
        >>> paths = ["/data/ants/1.jpg", "/else/2.jpg"]
        >>> list(RelativePaths(paths.__getitem__, range(2), "/data"))
        ['ants/1.jpg', '/else/2.jpg']
    """

    def __init__(self, path_of: Callable[[int], str], rows: Sequence[int], root: str) -> None:
        self._path_of, self._rows = path_of, rows
        self._prefix = os.path.join(root, "")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return self._path_of(self._rows[index]).removeprefix(self._prefix)


def hash_paths(paths: Sequence[str]) -> torch.Tensor:
    """A 64-bit hash of each path.

    Args:
        paths: N strings.

    Returns:
        int64 (N,), the same on every machine.

    Example:
        >>> one, two = hash_paths(["a/1.jpg", "a/2.jpg"])
        >>> bool(one == hash_paths(["a/1.jpg"])[0]), bool(one == two)
        (True, False)
    """
    hashes = np.empty(len(paths), dtype=np.uint64)
    for start in range(0, len(paths), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(paths)))
        chunk = [os.fsencode(paths[row]) for row in rows]
        hashes[start : start + len(chunk)] = _hashed(chunk)
    return torch.from_numpy(hashes.view(np.int64))


def _hashed(chunk: list[bytes]) -> NDArray[np.uint64]:
    """Words of 8 bytes are mixed in one after the other, for all paths at once (splitmix64)."""
    width = -(-max(map(len, chunk)) // 8) * 8 or 8
    words = np.array(chunk, dtype=f"S{width}").view(np.dtype("<u8")).reshape(len(chunk), -1)
    state = np.array([len(path) for path in chunk], dtype=np.uint64) * _MIX[0]
    for column in words.T.astype(np.uint64):
        mixed = (state ^ column) + _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[1]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[2]
        mixed ^= mixed >> np.uint64(31)
        state = np.where(column != 0, mixed, state)  # a path holds no NUL: these are padding
    return state


class Changes(NamedTuple):
    """How a data set differs from the one a checkpoint was trained on.

    Attributes:
        rows: int64 (N,), for each image its row in the checkpoint; −1 for an image that is new.
        num_gone: images of the checkpoint that are no more.
    """

    rows: torch.Tensor
    num_gone: int

    @property
    def num_new(self) -> int:
        """Images that the checkpoint has no row for."""
        return int((self.rows < 0).sum())

    def sentence(self, paths: Sequence[str]) -> str:
        """Say what differs, with an example.

        Args:
            paths: of the data set as it is now, (N,).
        """
        moved = (self.rows != torch.arange(len(self.rows))).nonzero().flatten()
        first = int(moved[0]) if len(moved) else len(self.rows) - 1
        if not self.num_new and not self.num_gone:
            return (
                f"{len(moved)} of the {len(paths)} images have another row, the first of them "
                f"'{paths[first]}', now row {first}, then row {int(self.rows[first])}"
            )
        parts = []
        if self.num_new:
            example = int((self.rows < 0).nonzero()[0])
            parts.append(f"{self.num_new} of {len(paths)} are new, such as '{paths[example]}'")
        if self.num_gone:
            parts.append(f"{self.num_gone} of the checkpoint's are gone")
        return " and ".join(parts)


def match_paths(before: torch.Tensor, now: torch.Tensor) -> Changes | None:
    """Find the images of a data set among a checkpoint's.

    Args:
        before: int64 (M,), hashes of the checkpoint.
        now: int64 (N,), hashes of the data set.

    Returns:
        None where both are the same images in the same order.

    Example:
        >>> match_paths(torch.tensor([7, 8, 9]), torch.tensor([9, 7, 1])).rows
        tensor([ 2,  0, -1])
    """
    if torch.equal(before, now):
        return None
    ordered, order = before.sort(stable=True)
    at = torch.searchsorted(ordered, now).clamp(max=max(len(before) - 1, 0))
    found = ordered[at] == now if len(before) else torch.zeros(len(now), dtype=torch.bool)
    rows = torch.where(found, order[at], -1) if len(before) else torch.full((len(now),), -1)
    # An image may be listed several times: of each, how many times more than now it was then.
    paths, places = torch.cat([before, now]).unique(return_inverse=True)
    signs = torch.ones(len(places), dtype=torch.int64)
    signs[len(before) :] = -1
    fewer = torch.zeros(len(paths), dtype=torch.int64).index_add_(0, places, signs)
    return Changes(rows, int(fewer.clamp(min=0).sum()))
