"""A memory bank sharded over W ranks, with |D| / W rows on each, so that 100M images fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write, sha256_of
from pirl_plugin.system.ranks import (
    errors_on_all_ranks,
    gather,
    gather_objects,
    sum_over_ranks,
    world_size,
)


class ShardedMemoryBank(MemoryBank):
    """A memory bank that keeps row r on rank r modulo W, as row r // W of its shard.

    Each rank draws negatives from its own shard, an even sample of the data set, and fetches
    positives from other ranks. :meth:`lookup`, :meth:`update`, :meth:`save` and :meth:`load` are
    collectives: all ranks call them together.

    ``state_dict`` excludes the shards, because training loops save only rank 0's. :meth:`save`
    writes them to a folder, and any number of ranks can load them.

    Args:
        num_rows: |D|.
        dim: embedding width; for all arguments see :class:`~pirl_plugin.method.bank.MemoryBank`.

    Attributes:
        rows: ``(len, dim)``, this rank's shard.
        awaits_load: whether a checkpoint was loaded without its shards yet.

    Raises:
        RuntimeError: in a collective, if the number of ranks has changed or ``awaits_load``.

    Example:
        >>> import torch
        >>> bank = ShardedMemoryBank(num_rows=10, dim=4)  # in one process: a single shard
        >>> bank.rows.shape, bank.lookup(torch.tensor([3, 9])).shape
        (torch.Size([10, 4]), torch.Size([2, 4]))
    """

    replicated = False
    awaits_load = False

    def fetch(self, index: Tensor) -> Tensor:
        """See :meth:`MemoryBank.fetch`. Collective; each rank gets its B rows in float32.

        B may differ between ranks; a negative entry gets zeros. This synchronizes with a GPU.
        """
        self._check_usable()
        padded = pad(index, (0, self._missing(index)), value=-1)
        local = self.local_index(gather(padded))
        rows = self.rows[local.clamp_min(0)].float().masked_fill(local[:, None] < 0, 0)
        start = self._rank * len(padded)
        # Each row is zero on all ranks except the one that holds it.
        return sum_over_ranks(rows)[start : start + len(index)]

    def exchange(self, index: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`MemoryBank.exchange`; B may differ between ranks in each call."""
        self._check_usable()
        return super().exchange(index, embeddings)

    def _check_usable(self) -> None:
        """Raise ``RuntimeError`` if there are other ranks, or rows of a checkpoint to load."""
        if self.awaits_load:
            raise RuntimeError(
                "The checkpoint's memory bank shards were not loaded. After load_state_dict(), "
                "call bank.load(FOLDER) with the folder from bank.save()."
            )
        if self._ranks != world_size():
            raise RuntimeError(
                f"The sharded memory bank was created for {self._ranks} ranks, but there are "
                f"{world_size()}. Create the loss after torch.distributed.init_process_group; "
                f"in Lightning, in configure_model."
            )

    def save(self, folder: str | Path) -> dict[str, str]:
        """Write one file per rank into ``folder``. Collective.

        Returns:
            SHA-256 checksums by file name, the same on all ranks, for the checkpoint.
        """
        self._check_usable()
        folder = Path(folder)
        checksums: dict[str, str] = {}
        name = f"rank_{self._rank}_of_{self._ranks}.torch"
        with errors_on_all_ranks():
            state = {
                "rows": self.rows.cpu(),
                "visited": self.visited.cpu(),
                "num_rows": self.num_rows,
                "first": self._rank,  # image number of row 0
                "every": self._ranks,  # step between image numbers
            }
            with atomic_write(folder / name) as file:
                torch.save(state, file)
            checksums[name] = sha256_of(folder / name)
        for of_rank in gather_objects(checksums):
            checksums |= of_rank
        return checksums

    def load(self, folder: str | Path, files: Iterable[str] | None = None) -> None:
        """Load shards, written by any number of ranks. Collective.

        Args:
            folder: the folder from :meth:`save`.
            files: names of the files to read, as returned by :meth:`save` (default: all).

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the bank in the files has a different size, or some files are missing.
        """
        folder = Path(folder)
        with errors_on_all_ranks():
            self._load(folder, files)
        self.awaits_load = False

    def _load(self, folder: Path, files: Iterable[str] | None) -> None:
        names = files or sorted(path.name for path in folder.glob("rank_*_of_*.torch"))
        num_loaded = 0
        for name in names:
            state: dict[str, Any] = torch.load(folder / name, map_location="cpu", weights_only=True)
            if state["num_rows"] != self.num_rows:
                raise Refused(
                    f"{folder / name} belongs to a memory bank of {state['num_rows']} images, and "
                    f"this one has {self.num_rows}. Create the loss for the same data set."
                )
            images = torch.arange(state["first"], state["num_rows"], state["every"])
            rows = state["rows"]
            visited = state["visited"]
            local = self.local_index(images)
            is_local = local >= 0
            self.rows[local[is_local]] = rows[is_local].to(self.rows)
            self.visited[local[is_local]] = visited[is_local].to(self.visited.device)
            num_loaded += int(is_local.sum())
        if num_loaded != len(self.rows):
            raise Refused(
                f"The files in {folder} have {num_loaded} of the {len(self.rows)} memory bank rows "
                f"for rank {self._rank}. Copy all files from a single save() call."
            )
