"""The memory bank m: one unit vector per image, a moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from pirl_plugin.method.index_check import as_index, check_range
from pirl_plugin.system.failures import (
    Refused,
    check,
    check_name,
    type_and_shape,
)
from pirl_plugin.system.ranks import gather, rank, world_size

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BLOCK = 65_536  # rows drawn from one generator; their values are the same on any rank
_SEED_FACTOR = 0x9E3779B1  # so that the generators of near seeds and blocks differ
_EPSILON = 1e-12  # as in torch.nn.functional.normalize


class MemoryBank(nn.Module):
    """A replicated memory bank: ``num_rows`` unit vectors, initially random (Wu et al. 2018).

    ``to`` moves the rows to a device and ``state_dict`` includes them, but they are not buffers:
    ``DistributedDataParallel`` would broadcast buffers in each step, and ``half()`` cast them.

    :meth:`update` does not synchronize with a GPU, except for the first one on several ranks.

    Args:
        num_rows: |D|, the number of images.
        dim: embedding width, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; updates are computed in float64.
        seed: seed for the initial rows.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.
        visited: ``(num_rows,)`` bool, whether each row has been updated.
        batch_size: largest batch on any rank, to which smaller ones are padded; None until the
            ranks agree on it, in the first update.
        replicated: whether each rank holds all rows, so that ``state_dict`` includes them.

    Raises:
        ValueError: the momentum is out of range, or the dtype is unknown.

    Example:
        >>> import torch
        >>> bank = MemoryBank(num_rows=3, dim=2, momentum=0.5)
        >>> bank.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).shape
        torch.Size([3, 2])
        >>> bank.update(torch.tensor([0]), torch.tensor([[0.0, 3.0]]))
        >>> bank.lookup(torch.tensor([0, 1]))  # (1, 0)/2 + (0, 1)/2, then to unit norm
        tensor([[0.7071, 0.7071],
                [0.0000, 1.0000]])
    """

    rows: Tensor
    visited: Tensor
    batch_size: int | None = None
    replicated = True

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        expected = "a number in [0, 1), the weight of the old row"
        check("momentum", momentum, 0 <= momentum < 1, expected)
        check_name("dtype", dtype, DTYPES)
        # Row r of this rank belongs to the image _rank + r·_ranks.
        self._rank = 0 if self.replicated else rank()
        self._ranks = 1 if self.replicated else world_size()
        self.num_rows = num_rows
        self.momentum = momentum
        self.rows = self._initial_rows(dim, seed, DTYPES[dtype])
        self.visited = torch.zeros(len(self.rows), dtype=torch.bool, device=self.rows.device)

    def _initial_rows(self, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
        """Draw this rank's initial rows."""
        num_local = len(range(self._rank, self.num_rows, self._ranks))
        # NumPy requests huge pages from Linux, which speeds up random reads.
        memory = np.empty(num_local * dim * dtype.itemsize, np.uint8)
        # On the CPU, even inside torch.device("cuda") or Lightning's configure_model.
        rows = torch.from_numpy(memory).view(dtype).view(num_local, dim)
        filled = 0
        for block, start in enumerate(range(0, self.num_rows, _BLOCK)):
            generator = torch.Generator().manual_seed((seed * _SEED_FACTOR + block) & 0xFFFFFFFF)
            values = torch.empty(_BLOCK, dim, dtype=torch.float32, device="cpu")
            values.uniform_(-1, 1, generator=generator)
            first = (self._rank - start) % self._ranks  # image of this rank in the block
            local = values[first : self.num_rows - start : self._ranks]
            rows[filled : filled + len(local)] = normalize(local)
            filled += len(local)
        return rows

    def lookup(self, index: Tensor) -> Tensor:
        """Return the rows for ``index``: ``(B, dim)`` for ``(B,)`` int64.

        Raises:
            ValueError: the index is not an int64 tensor, or an entry is outside the data set. This
                check synchronizes with a GPU.
        """
        index = as_index(index)
        check_range(index, self.num_rows, lowest=0)
        return self.fetch(index)

    def fetch(self, index: Tensor) -> Tensor:
        """Return the rows for ``index`` as :meth:`lookup` does, but unchecked."""
        return self.rows[index]

    def local_index(self, index: Tensor) -> Tensor:
        """Return positions in :attr:`rows`, ``(B,)`` int64; −1 for rows on other ranks.

        Args:
            index: ``(B,)`` int64, image numbers in the data set; −1 stays −1.
        """
        if self.replicated:
            return index
        is_local = (index >= 0) & (index % self._ranks == self._rank)
        return torch.where(is_local, index // self._ranks, -1)

    def exchange(self, index: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Gather the embeddings from all ranks. Collective.

        Args:
            index: ``(B,)`` int64, this rank's images; negative entries are skipped.
            embeddings: ``(B, dim)``, the image embeddings.

        Returns:
            Indices into :attr:`rows` ``(n,)``, −1 for rows on other ranks, and embeddings
            ``(n, dim)``, for :meth:`move`.

        Raises:
            ValueError: this rank's batch is larger than all batches in the first update.
        """
        missing = self._missing(index)
        index = gather(pad(index, (0, missing), value=-1))
        return self.local_index(index), gather(pad(embeddings, (0, 0, 0, missing)))

    def _missing(self, index: Tensor) -> int:
        """Return by how many images this rank's batch is smaller than the largest. Collective.

        The ranks agree on a replicated bank's largest batch once, because this synchronizes with a
        GPU.
        """
        if world_size() == 1:
            return 0
        if self.batch_size is None or not self.replicated:
            self.batch_size = int(gather(index.new_tensor([len(index)])).amax())
        if len(index) > self.batch_size:
            raise Refused(
                f"This rank's batch has {len(index)} images, but the largest in the first update "
                f"had {self.batch_size}. Start with the largest batch, or use a sharded memory "
                f"bank."
            )
        return self.batch_size - len(index)

    def update(self, index: Tensor, embeddings: Tensor, momentum: float | None = None) -> None:
        """Exchange embeddings between ranks and :meth:`move` their rows. Collective.

        Args:
            index: ``(B,)`` int64, image numbers for this rank's batch; −1 skips an image.
            embeddings: ``(B, dim)`` f(v_I), normalized here; non-finite ones are skipped.
            momentum: weight of the old rows (default: the bank's).

        Raises:
            ValueError: an argument has the wrong type or shape, or on a CPU an index is outside the
                bank. On a GPU, such an image is skipped: the loss was NaN. See also
                :meth:`exchange`.
        """
        index = self.check_batch(index, embeddings)
        if index.device.type == "cpu":
            check_range(index, self.num_rows)
        index = index.masked_fill(index >= self.num_rows, -1)
        self.move(*self.exchange(index, embeddings.detach().float()), momentum)

    def check_batch(self, index: Tensor, embeddings: Tensor, name: str = "embeddings") -> Tensor:
        """Return the index as ``(B,)``.

        Args:
            index: ``(B,)`` int64.
            embeddings: ``(B, dim)``.
            name: name of the embeddings in error messages.

        Raises:
            ValueError: the index is not an int64 tensor, or the embeddings are not a float tensor
                ``(B, dim)``.
        """
        index = as_index(index)
        shape = (len(index), self.rows.shape[1])
        is_tensor = isinstance(embeddings, Tensor)
        if not is_tensor or embeddings.shape != shape or not embeddings.is_floating_point():
            raise Refused(
                f"{name} is {type_and_shape(embeddings)}: expected a float tensor of shape "
                f"{shape}, with one row per index and embedding_dim columns. Check the head's "
                f"out_dim and num_patches."
            )
        return index

    @torch.no_grad()
    def move(self, index: Tensor, embeddings: Tensor, momentum: float | None = None) -> None:
        """Move rows toward new embeddings: row ← normalize(m·row + (1 − m)·f).

        A repeated row (samplers pad by repetition) moves once, toward the mean of its normalized
        embeddings, so order does not matter. All tensors have n rows, however many entries are
        skipped or repeated, so this does not synchronize with a GPU.

        Args:
            index: ``(n,)`` int64, indices into :attr:`rows`; negative entries are skipped.
            embeddings: ``(n, dim)`` f(v_I), normalized here; zero or non-finite ones are skipped.
            momentum: m (default: the bank's). With 0, rows become the embeddings.
        """
        if momentum is None:
            momentum = self.momentum
        if len(index) == 0:
            return
        # In float64 the summation order does not matter.
        embeddings = embeddings.double()
        norms = embeddings.norm(dim=1, keepdim=True)  # n×1
        valid = (index >= 0) & (norms[:, 0] > 0) & (norms[:, 0] < torch.inf)  # n; NaN is neither
        left_out = ~valid
        f = (embeddings / norms.clamp_min(_EPSILON)).masked_fill(left_out[:, None], 0)  # n×D

        # A skipped entry joins a moving row with weight 0. If no row moves, it is written to row 0,
        # which keeps its value.
        last_moving = index.masked_fill(left_out, -1).amax()
        index = torch.where(valid, index, last_moving.clamp_min(0))
        # Entries for the same row share a slot: the row's first position in the sorted index. Its
        # other slots stay empty: index 5, 2, 5 is sorted 2, 5, 5 and has slots 1, 0, 1.
        sorted_index = index.sort().values
        slot = torch.searchsorted(sorted_index, index)  # n
        count = f.new_zeros(len(f)).index_add_(0, slot, valid.to(f.dtype))  # n
        total = torch.zeros_like(f).index_add_(0, slot, f)  # n×D
        mean = total / count.clamp_min(1)[:, None]

        old = self.rows[sorted_index]
        moved = mean.lerp(old.to(f.dtype), momentum)  # (1 − m)·f + m·row
        moved_norms = moved.norm(dim=1, keepdim=True)
        new = (moved / moved_norms.clamp_min(_EPSILON)).to(old.dtype)
        # An embedding opposite to its row may cancel it. Then the row keeps its value.
        moves = (count > 0) & (moved_norms[:, 0] > _EPSILON)
        new = torch.where(moves[:, None], new, old)
        # All entries for a row write the same value, the one in their slot.
        self.rows[index] = new[slot]
        # If any row moves, all entries point to moving rows.
        self.visited[index] = self.visited[index] | (last_moving >= 0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Take only the device from `fn`: that of `half()` would also cast the rows.
        device = fn(self.visited[:0]).device
        if device != self.rows.device:
            self.rows = self.rows.to(device)
            self.visited = self.visited.to(device)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(self, *arguments: Any) -> None:
        if self.replicated:
            with self._as_buffers():
                super()._save_to_state_dict(*arguments)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        if self.replicated:
            with self._as_buffers():
                super()._load_from_state_dict(*arguments)

    @contextmanager
    def _as_buffers(self) -> Iterator[None]:
        """Let torch save or load rows and visited as buffers in a block."""
        buffers: dict[str, Any] = self._buffers
        buffers.update(rows=self.rows, visited=self.visited)
        try:
            yield
        finally:
            self.rows = buffers.pop("rows")
            self.visited = buffers.pop("visited")
