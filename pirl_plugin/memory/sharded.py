"""The memory bank split over the ranks, |D| / W rows on each, so that 100M images fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.distributed import on_all_ranks, rank, sum_over_ranks, world_size
from pirl_plugin.memory.bank import MemoryBank
from pirl_plugin.memory.permutation import PERMUTATIONS, Permutation, RowPermutation
from pirl_plugin.memory.routing import Routing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.device_mesh import DeviceMesh

_VERSION = "permutation_version"  # saved beside the shards; version 1 saved none


class ShardedMemoryBank(MemoryBank):
    """A bank whose rows are dealt to the ranks by a fixed permutation.

    Each rank draws its negatives from its shard, an even sample of the data set, and fetches
    positives from the ranks that hold them. Methods that say so are collectives: all ranks
    call them together. Arguments as for :class:`~pirl_plugin.memory.MemoryBank`.

    The shards are no part of ``state_dict``: the host saves that of rank 0 alone. They are saved
    by :meth:`save`, beside the host's checkpoint, and load at any world size.

    Attributes:
        rows: ``(stop − start, dim)``, this rank's shard, in the order of ``permutation``; for
            the order of the data set call :meth:`sample`.
        permutation: what deals them; that of the shards where shards were loaded.
        start: first permuted position of the shard.
        stop: the one after its last.
        smallest_shard: rows of the last rank, which may have fewer than the others.
        awaits_load: whether its loss is of a checkpoint whose shards have not been loaded yet.

    Raises:
        ValueError: a rank would hold fewer than two rows.
        RuntimeError: by the methods: it was made for another number of ranks; or it is looked at
            while it ``awaits_load``.

    Example:
        >>> import torch
        >>> bank = ShardedMemoryBank(num_rows=10, dim=4)  # in one process: a single shard
        >>> bank.rows.shape, bank.lookup(torch.tensor([3, 9])).shape
        (torch.Size([10, 4]), torch.Size([2, 4]))
    """

    persistent = False
    awaits_load = False

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        self.permutation: Permutation = RowPermutation(num_rows)
        self._ranks = world_size()
        self._mesh: tuple[object, DeviceMesh] | None = None
        self._share = size = -(-num_rows // world_size())  # as torch.chunk deals them
        self.start, self.stop = (min((rank() + i) * size, num_rows) for i in (0, 1))
        if num_rows < size * (world_size() - 1) + 2:
            raise ValueError(
                f"LOSS.pirl_loss.bank.placement = sharded: expected at least 2 images for each of "
                f"{world_size()} ranks, and there are {num_rows}; set it to replicated"
            )
        self.smallest_shard = num_rows - size * (world_size() - 1)
        super().__init__(num_rows, dim, momentum=momentum, dtype=dtype, seed=seed)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the mesh, whose process groups cannot be copied; it is made when needed."""
        return self.__dict__ | {"_mesh": None}

    def _span(self) -> tuple[int, int]:
        return self.start, self.stop

    def lookup(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.lookup`. Collective: every rank looks its B rows up; float32."""
        if self.awaits_load:
            raise RuntimeError(
                "the memory bank's shards are not those of its loss's checkpoint: expected a call "
                "of bank.load(FOLDER) after load_state_dict(), with the folder of bank.save()"
            )
        self._check_ranks()
        positions = self.permutation.position(rows)
        if self._ranks == 1:
            return self.rows[positions].float()
        routing = Routing(positions, positions // self._share)
        return routing.from_owners(self.rows[routing.positions - self.start]).float()

    def sample(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.sample`. Collective: every rank names the same B rows; float32."""
        index = self.local_index(rows.to(self.rows.device))
        local = self.rows[index.clamp(min=0)].float() * (index >= 0)[:, None]
        return sum_over_ranks(local)

    def table_for(self, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`MemoryBank.table_for`. Collective: a given draw may lie in any shard."""
        table = self.lookup(negatives.flatten())
        return table, torch.arange(len(table), device=table.device).view_as(negatives)

    def local_index(self, rows: Tensor) -> Tensor:
        """See :meth:`MemoryBank.local_index`. Draws are so uniform over this rank's shard."""
        index = self.permutation.position(rows) - self.start
        is_local = (index >= 0) & (index < len(self.rows)) & (rows >= 0)
        return index.masked_fill_(~is_local, -1)

    def start_exchange(
        self, rows: Tensor, embeddings: Tensor
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        """See :meth:`MemoryBank.start_exchange`: a rank gets what moves its shard, no more.

        B may differ between ranks.
        """
        self._check_ranks()
        if self._ranks == 1:
            return lambda: (self.local_index(rows), embeddings)
        positions = self.permutation.position(rows)
        owners = torch.where(rows >= 0, positions // self._share, self._ranks)
        routing = Routing(positions, owners)
        finish = routing.start_to_owners(embeddings)
        return lambda: (routing.positions - self.start, finish())

    def fill(self, rows: Tensor, visited: Tensor) -> None:
        """Take this rank's part of a whole bank, in the order of the data set.

        Args:
            rows: ``(|D|, dim)``.
            visited: ``(|D|,)`` bool.
        """
        index = self.local_index(torch.arange(len(rows)))
        is_local = index >= 0
        self.rows[index[is_local]] = rows[is_local].to(self.rows)
        self.visited[index[is_local]] = visited[is_local].to(self.visited)
        self.loaded, self.awaits_load = True, False

    def save(self, folder: str | Path) -> None:
        """Collective: write all shards with torch.distributed.checkpoint, committed by a rename."""
        from pirl_plugin.checkpoints.shards import save_shards

        row = self.rows.shape[1] * self.rows.element_size() + self.visited.element_size()
        save_shards(self._sharded_state(), Path(folder), needed=self.num_rows * row)

    def load(self, folder: str | Path) -> None:
        """Collective: read the shards, which any number of ranks may have written.

        Raises:
            ValueError: they are damaged, those of a bank of another size, or of a newer version.
        """
        from pirl_plugin.checkpoints.shards import load_shards, read_shapes

        folder = Path(folder)
        shapes: dict[str, tuple[int, ...]] = {}

        def check() -> None:
            shapes.update(read_shapes(folder))
            shape, expected = shapes.get("rows"), (self.num_rows, self.rows.shape[1])
            if shape != expected:
                raise ValueError(
                    f"the memory bank in {folder} is {shape}, this run's is {expected} (images, "
                    f"embedding_dim): it is of another data set or head; point "
                    f"config.DATA.TRAIN at the same data, or start again in another "
                    f"config.CHECKPOINT.DIR"
                )

        on_all_ranks(check)
        state, version = self._sharded_state(), torch.ones(1, dtype=torch.int64)
        state.pop(_VERSION)
        load_shards(state | ({_VERSION: version} if _VERSION in shapes else {}), folder)
        if int(version) not in PERMUTATIONS:
            raise ValueError(
                f"the memory bank in {folder} is dealt to ranks in way {int(version)}: expected "
                f"one of {', '.join(map(str, PERMUTATIONS))}; it was saved by a newer pirl_plugin, "
                f"install that"
            )
        self.permutation = PERMUTATIONS[int(version)](self.num_rows)
        self.loaded, self.awaits_load = True, False

    def _check_ranks(self) -> None:
        if self._ranks != world_size():
            raise RuntimeError(
                f"the sharded memory bank was made for {self._ranks} ranks, and there are "
                f"{world_size()}: make the loss after torch.distributed.init_process_group, in "
                f"Lightning in configure_model"
            )

    def _device_mesh(self) -> DeviceMesh:
        """All ranks in a row, made once: with gloo each mesh may start a group of its own."""
        from torch.distributed import group
        from torch.distributed.device_mesh import DeviceMesh

        made_for = (group.WORLD, self.rows.device.type)
        if self._mesh is None or self._mesh[0] != made_for:
            self._mesh = made_for, DeviceMesh(made_for[1], list(range(self._ranks)))
        return self._mesh[1]

    def _sharded_state(self) -> dict[str, Tensor]:
        """The shards as one tensor of shape ``(|D|, …)`` each, split along its first dimension.

        Beside them, the same on all ranks, the version of what deals them.
        """
        self._check_ranks()
        version = torch.tensor([self.permutation.version])
        if self._ranks == 1:
            return {"rows": self.rows, "visited": self.visited, _VERSION: version}
        from torch.distributed.tensor import DTensor, Shard

        mesh = self._device_mesh()
        shards = {
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
        return {**shards, _VERSION: version}
