"""A memory bank sharded over W ranks, with |D| / W rows on each, so that 100M images fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write, sha256_of
from pirl_plugin.system.ranks import (
    all_to_all,
    errors_on_all_ranks,
    gather_objects,
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
        """See :meth:`MemoryBank.fetch`. Collective; each rank gets its B rows in float32."""
        route = self._route(index)
        rows = self.rows[route.send(index) // self._ranks]
        return route.send_back(rows, len(index)).float()

    def exchange(self, index: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`MemoryBank.exchange`; B may differ between ranks."""
        route = self._route(index)
        return route.send(index) // self._ranks, route.send(embeddings)

    def _route(self, index: Tensor) -> _Route:
        """Return the route to the images' rows; this synchronizes with a GPU once."""
        self._check_loaded()
        if self._ranks != world_size():
            raise RuntimeError(
                f"The sharded memory bank was created for {self._ranks} ranks, but there are "
                f"{world_size()}. Create the loss after torch.distributed.init_process_group; "
                f"in Lightning, in configure_model."
            )
        owners = torch.where(index >= 0, index % self._ranks, self._ranks)
        return _Route(owners, self._ranks)

    def _check_loaded(self) -> None:
        """Raise ``RuntimeError`` if the checkpoint's rows are not loaded yet."""
        if self.awaits_load:
            raise RuntimeError(
                "The checkpoint's memory bank shards were not loaded. After load_state_dict(), "
                "call bank.load(FOLDER) with the folder from bank.save()."
            )

    def save(self, folder: str | Path) -> dict[str, str]:
        """Write one file per rank into ``folder``. Collective.

        Returns:
            SHA-256 checksums by file name, the same on all ranks, for the checkpoint.
        """
        self._check_loaded()
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


class _Route:
    """Sends values for this rank's images to the ranks that hold their rows, and back.

    Messages are not padded. The CPU needs their sizes, so it synchronizes with a GPU.

    Args:
        owners: ``(B,)`` int64, the rank that holds each row; W skips an image.
        ranks: W.
    """

    def __init__(self, owners: Tensor, ranks: int) -> None:
        # bincount would synchronize with a GPU for its number of bins.
        counts = owners.new_zeros(ranks + 1).index_add_(0, owners, torch.ones_like(owners))
        to_send = counts[:ranks]
        to_receive = all_to_all(to_send, [1] * ranks, [1] * ranks)
        self._sent, self._received = torch.stack([to_send, to_receive]).tolist()
        # Skipped images are last.
        self._order = owners.argsort(stable=True)[: sum(self._sent)]

    def send(self, values: Tensor) -> Tensor:
        """Send ``(B, …)`` to the owners; return the received ``(n, …)``, in rank order."""
        return all_to_all(values[self._order], self._sent, self._received)

    def send_back(self, values: Tensor, size: int) -> Tensor:
        """Send ``(n, …)`` back to the senders; return ``(size, …)``, 0 for skipped images."""
        received = all_to_all(values, self._received, self._sent)
        return values.new_zeros(size, *values.shape[1:]).index_copy_(0, self._order, received)
