"""The memory bank split over the ranks, |D| / W rows on each, so that 100M images fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pirl_plugin.memory.bank import MemoryBank
from pirl_plugin.memory.permutation import RowPermutation
from pirl_plugin.utils.distributed import (
    gather,
    rank,
    reduce_scatter,
    sum_over_ranks,
    world_size,
)

if TYPE_CHECKING:
    from pathlib import Path


class ShardedMemoryBank(MemoryBank):
    """A bank whose rows are dealt to the ranks by a fixed pseudo-random permutation.

    Each rank draws its negatives from its shard, which is a random sample of the data set, and
    fetches positives from the ranks that hold them. Methods that say so are collectives: all ranks
    call them together. Arguments as for :class:`~pirl_plugin.memory.MemoryBank`.

    The shards are no part of ``state_dict``: the host saves that of rank 0 alone. They are saved
    by :meth:`save`, beside the host's checkpoint, and load at any world size.

    Attributes:
        rows: ``(stop − start, dim)``, this rank's shard.
        start: first permuted position of the shard.
        stop: the one after its last.
        smallest_shard: rows of the last rank, which may have fewer than the others.

    Raises:
        ValueError: there are fewer than two rows for each rank.

    Example:
        >>> import torch
        >>> bank = ShardedMemoryBank(num_rows=10, dim=4)  # in one process: a single shard
        >>> bank.rows.shape, bank.lookup(torch.tensor([3, 9])).shape
        (torch.Size([10, 4]), torch.Size([2, 4]))
    """

    persistent = False

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        self.permutation = RowPermutation(num_rows)  # fixed: saved shards depend on it
        size = -(-num_rows // world_size())  # as torch.chunk deals them
        self.start, self.stop = (min((rank() + i) * size, num_rows) for i in (0, 1))
        if num_rows < size * (world_size() - 1) + 2:
            raise ValueError(
                f"LOSS.pirl_loss.bank.placement = sharded: expected at least 2 images for each of "
                f"{world_size()} ranks, and there are {num_rows}; set it to replicated"
            )
        self.smallest_shard = num_rows - size * (world_size() - 1)
        super().__init__(num_rows, dim, momentum=momentum, dtype=dtype, seed=seed)

    def _span(self) -> tuple[int, int]:
        return self.start, self.stop

    def lookup(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.lookup`. Collective: every rank looks its B rows up; float32."""
        index, is_local = self._index(gather(rows))  # (W·B,) each
        # Each rank adds what it holds, zeros for the rest; rank r gets its part of the sum.
        return reduce_scatter(self.rows[index].float() * is_local[:, None])

    def sample(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.sample`. Collective: every rank names the same B rows; float32."""
        index, is_local = self._index(rows)
        return sum_over_ranks(self.rows[index].float() * is_local[:, None])

    def table_for(self, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`MemoryBank.table_for`. Collective: a given draw may lie in any shard."""
        table = self.lookup(negatives.flatten())
        return table, torch.arange(len(table), device=table.device).view_as(negatives)

    def local_index(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.local_index`. Draws are so uniform over this rank's shard."""
        index, is_local = self._index(rows.clamp(min=0))
        return torch.where(is_local & (rows >= 0), index, -1)

    def update(self, rows: Tensor, embeddings: Tensor) -> Tensor:
        """See :meth:`MemoryBank.update`; moves the rows of this rank's shard, leaves the others."""
        return super().update(self.local_index(rows), embeddings)

    def fill(self, rows: Tensor) -> None:
        """Take the rows of a whole bank ``(|D|, dim)``, in the order of the data set."""
        index, is_local = self._index(torch.arange(len(rows)))
        self.rows[index[is_local]] = rows[is_local].to(self.rows)
        self.visited.fill_(True)
        self.loaded = True

    def save(self, folder: Path) -> None:
        """Collective: write all shards with torch.distributed.checkpoint, committed by a rename."""
        from pirl_plugin.checkpoints.shards import save_shards

        row = self.rows.shape[1] * self.rows.element_size() + self.visited.element_size()
        save_shards(self._sharded_state(), folder, needed=self.num_rows * row)

    def load(self, folder: Path) -> None:
        """Collective: read the shards, which any number of ranks may have written.

        Raises:
            ValueError: they are damaged, or those of a bank of another size.
        """
        from pirl_plugin.checkpoints.shards import load_shards, read_shapes

        shape = read_shapes(folder).get("rows")
        if shape != (self.num_rows, self.rows.shape[1]):
            raise ValueError(
                f"the memory bank in {folder} is {shape}, this run's is "
                f"{(self.num_rows, self.rows.shape[1])} (images, embedding_dim): it is of another "
                f"data set or head; point config.DATA.TRAIN at the same data, or start again in "
                f"another config.CHECKPOINT.DIR"
            )
        load_shards(self._sharded_state(), folder)
        self.loaded = True

    def _sharded_state(self) -> dict[str, Any]:
        """The shards as one tensor of shape ``(|D|, …)`` each, split along its first dimension."""
        if world_size() == 1:
            return {"rows": self.rows, "visited": self.visited}
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = DeviceMesh(self.rows.device.type, list(range(world_size())))
        return {
            name: DTensor.from_local(
                shard,
                mesh,
                [Shard(0)],
                run_check=False,
                shape=torch.Size((self.num_rows, *shard.shape[1:])),
                stride=shard.stride(),
            )
            for name, shard in (("rows", self.rows), ("visited", self.visited))
        }

    def _index(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """For each row its index in this shard, and whether it is in it at all (else index 0)."""
        positions = self.permutation.position(rows)
        is_local = (positions >= self.start) & (positions < self.stop)
        return torch.where(is_local, positions - self.start, 0), is_local
