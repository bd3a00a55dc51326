"""The memory bank split over the ranks, |D| / W rows on each, so that 100M images fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pirl_plugin.memory.bank import MemoryBank
from pirl_plugin.memory.collectives import gather, rank, sum_and_share_out, world_size
from pirl_plugin.memory.permutation import RowPermutation

if TYPE_CHECKING:
    from pathlib import Path


class ShardedMemoryBank(MemoryBank):
    """A bank whose rows are dealt to the ranks by a fixed pseudo-random permutation.

    Each rank draws its negatives from its own shard, which is a random sample of the data set, and
    fetches positives from their owners. Every method that says so is a collective: all ranks call
    it together. Arguments as for :class:`~pirl_plugin.memory.MemoryBank`.

    The shards are no part of ``state_dict``: the host saves that of rank 0 alone. They are saved
    by :meth:`save`, beside the host's checkpoint, and load at any world size.

    Attributes:
        rows: ``(stop − start, dim)``, this rank's shard.
        start: first permuted position of the shard.
        stop: the one after its last.
        smallest_shard: rows of the last rank, which may have fewer than the others.
        loaded: whether the rows come from a checkpoint.

    Raises:
        ValueError: there are fewer than two rows for each rank.
    """

    persistent = False
    loaded = False

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        self.permutation = RowPermutation(num_rows)  # fixed: saved shards depend on it
        size = -(-num_rows // world_size())  # as torch.chunk deals them
        self.start, self.stop = (min((rank() + i) * size, num_rows) for i in (0, 1))
        if num_rows < size * (world_size() - 1) + 2:
            raise ValueError(
                f"a sharded memory bank of {num_rows} rows on {world_size()} ranks: each needs at "
                f"least 2; set LOSS.pirl_loss.bank.placement to replicated"
            )
        self.smallest_shard = num_rows - size * (world_size() - 1)
        super().__init__(num_rows, dim, momentum=momentum, dtype=dtype, seed=seed)

    def _span(self) -> tuple[int, int]:
        return self.start, self.stop

    def own(self, rows: Tensor) -> Tensor:
        """Collective; see :meth:`MemoryBank.own`. Rows travel from their owners, in float32."""
        slots, mine = self._slots(gather(rows))
        return sum_and_share_out(self.rows[slots].float() * mine[:, None])

    def locate(self, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Collective; see :meth:`MemoryBank.locate`. A given draw may lie in any shard."""
        table = self.own(negatives.flatten())
        return table, torch.arange(len(table), device=table.device).view_as(negatives)

    def places(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.places`. Draws are so uniform over this rank's shard."""
        slots, mine = self._slots(rows.clamp(min=0))
        return torch.where(mine & (rows >= 0), slots, -1)

    def update(self, rows: Tensor, embeddings: Tensor) -> Tensor:
        """See :meth:`MemoryBank.update`; moves the rows that are this rank's, leaves the others."""
        return super().update(self.places(rows), embeddings)

    def fill(self, rows: Tensor) -> None:
        """Take the rows of a whole bank ``(|D|, dim)``, in the order of the data set."""
        slots, mine = self._slots(torch.arange(len(rows)))
        self.rows[slots[mine]] = rows[mine].to(self.rows)
        self.visited.fill_(True)
        self.loaded = True

    def save(self, folder: Path) -> None:
        """Collective: write all shards with torch.distributed.checkpoint."""
        from torch.distributed import checkpoint

        checkpoint.save(self._sharded_state(), checkpoint_id=str(folder))

    def load(self, folder: Path) -> None:
        """Collective: read the shards, which any number of ranks may have written.

        Raises:
            ValueError: they are those of a bank of another size.
        """
        from torch.distributed import checkpoint

        found = checkpoint.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
        shape = tuple(found["rows"].size)  # type: ignore[union-attr]
        if shape != (self.num_rows, self.rows.shape[1]):
            raise ValueError(
                f"the memory bank in {folder} is {shape}, this run's is "
                f"{(self.num_rows, self.rows.shape[1])} (images, embedding_dim): it is of another "
                f"data set or head; point config.DATA.TRAIN at the same data, or start anew in "
                f"another config.CHECKPOINT.DIR"
            )
        checkpoint.load(self._sharded_state(), checkpoint_id=str(folder))
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

    def _slots(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """For each row its slot in this shard, and whether it is here at all (else slot 0)."""
        positions = self.permutation.position(rows)
        mine = (positions >= self.start) & (positions < self.stop)
        return torch.where(mine, positions - self.start, 0), mine
