"""The memory bank m: a unit vector for each image, the moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pirl_plugin.distributed import start_gather
from pirl_plugin.memory.checks import (
    check_embeddings,
    check_equal_batches,
    check_finite,
    check_rows,
    row_vector,
)
from pirl_plugin.memory.negatives import Draw
from pirl_plugin.utils.huge_pages import advise_huge_pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_EPS = 1e-12  # least length that a vector is divided by, as in torch.nn.functional.normalize
_BLOCK = 65_536  # rows drawn from one generator; their values are the same on any rank


class MemoryBank(nn.Module):
    """``num_rows`` unit vectors, random at first, as in Wu et al. 2018; all of them on each rank.

    Args:
        num_rows: |D|, the number of images.
        dim: width of the embeddings, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; arithmetic is float32 or wider in any case.
        seed: of the initial rows.

    ``to`` takes the rows to a device and ``state_dict`` has them, but they are no buffers: those
    of rank 0 would be sent to all ranks by ``DistributedDataParallel`` at each step, and cast by
    ``half()``.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.
        visited: ``(num_rows,)`` bool, whether a row has been updated yet.
        persistent: whether the rows are part of ``state_dict``.
        loaded: whether the rows come from a checkpoint.

    Raises:
        ValueError: an argument cannot be used.

    Example:
        >>> import torch
        >>> bank = MemoryBank(num_rows=3, dim=2, momentum=0.5)
        >>> bank.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).shape
        torch.Size([3, 2])
        >>> _ = bank.update(torch.tensor([0]), torch.tensor([[0.0, 3.0]]))
        >>> bank.lookup(torch.tensor([0, 1]))  # (1, 0)/2 + (0, 1)/2, then to unit norm
        tensor([[0.7071, 0.7071],
                [0.0000, 1.0000]])
    """

    rows: Tensor
    visited: Tensor
    persistent = True
    loaded = False

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        if num_rows < 2:
            raise ValueError(
                f"num_train_samples = {num_rows}: expected at least 2 images to contrast; check "
                f"the data set (config.DATA.TRAIN.DATA_PATHS)"
            )
        if not 0 <= momentum < 1:
            raise ValueError(
                f"bank.momentum = {momentum}: expected a weight in [0, 1); set it to one, as 0.5"
            )
        if dtype not in DTYPES:
            raise ValueError(
                f"bank.dtype = {dtype!r}: expected one of {', '.join(DTYPES)}; set it to one "
                f"of these"
            )
        self.num_rows = num_rows
        self.momentum = momentum
        self.rows = _initial_rows(*self._span(), dim, seed, DTYPES[dtype])
        self.visited = torch.zeros(len(self.rows), dtype=torch.bool)

    def _span(self) -> tuple[int, int]:
        """First position held on this rank, and the one after the last."""
        return 0, self.num_rows

    def lookup(self, rows: Tensor) -> Tensor:
        """Return the vectors of given images: ``(B, dim)`` for ``(B,)`` int64."""
        return self.rows[rows]

    def sample(self, rows: Tensor) -> Tensor:
        """Return the vectors of ``(B,)`` images, the same on all ranks: ``(B, dim)``."""
        return self.rows[rows]

    def table_for(self, negatives: Tensor) -> tuple[Tensor, Tensor]:
        """Return a table ``(rows, dim)`` with the drawn images, and their indices in it ``(B, N)``.

        Args:
            negatives: ``(B, N)`` int64, rows of the data set.
        """
        return self.rows, negatives

    def local_index(self, rows: Tensor) -> Tensor:
        """Return the index in :attr:`rows` of given images, ``(B,)`` int64; −1 if on another rank.

        Args:
            rows: ``(B,)`` int64, rows of the data set; −1 stays −1.
        """
        return rows

    def draw(
        self,
        rows: Tensor,
        count: int,
        *,
        seed: int,
        step: int,
        replacement: bool = True,
        per_batch: bool = False,
    ) -> Draw:
        """Draw negatives for each image, as indices of :attr:`rows`.

        Args:
            rows: ``(B,)`` int64, rows of the data set.
            count: N.
            seed: key of the draw.
            step: training step.
            replacement: as of :func:`~pirl_plugin.memory.draw_negatives`.
            per_batch: as of :func:`~pirl_plugin.memory.draw_negatives`.
        """
        index, held = self.local_index(rows), len(self.rows)
        return Draw(rows, index, held, count, seed, step, replacement, per_batch)

    def start_exchange(
        self, rows: Tensor, embeddings: Tensor
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        """Begin to bring here, from all ranks, what moves the rows held here. Collective.

        Args:
            rows: ``(B,)`` int64, rows of this rank's images, as many on each rank; negative entries
                are left out.
            embeddings: ``(B, dim)``, theirs.

        Returns:
            A function that waits for them: indices of :attr:`rows` ``(n,)`` and embeddings ``(n,
            dim)``, in the order of ranks, for :meth:`move`.

        Raises:
            ValueError: on a CPU, the ranks have different B.
        """
        if rows.device.type == "cpu":
            check_equal_batches(len(rows))
        finish = start_gather(rows), start_gather(embeddings)
        return lambda: (finish[0](), finish[1]())

    def update(self, rows: Tensor, embeddings: Tensor) -> Tensor:
        """Move those of given rows that are held here: see :meth:`move`.

        Args:
            rows: ``(B,)`` int64, rows of the data set; negative entries are left out, and on a
                GPU, where checking would make the host wait, those outside the bank.
            embeddings: ``(B, dim)`` f(v_I), normalised here.

        Raises:
            ValueError: rows or embeddings of another type, embeddings of another number or width;
                on a CPU, a row is outside the bank.
            FloatingPointError: on a CPU, an embedding is not finite; no row has moved.
        """
        rows = row_vector("rows", rows)
        check_embeddings(embeddings, len(rows), self.rows.shape[1])
        if rows.device.type == "cpu":
            check_rows(rows, self.num_rows)
            check_finite(rows, embeddings)
        inside = rows.masked_fill(rows >= self.num_rows, -1)
        return self.move(self.local_index(inside), embeddings)

    @torch.no_grad()
    def move(self, rows: Tensor, embeddings: Tensor, momentum: float | None = None) -> Tensor:
        """Move rows towards new embeddings: row ← normalise(m·row + (1 − m)·f).

        A row that occurs several times (samplers pad by repetition) moves once, towards the mean of
        its embeddings, so that the outcome does not depend on their order. The loop that this
        vectorises is ``loop_update`` in ``tests/helpers/bank_oracle.py``.

        Args:
            rows: ``(B,)`` int64, indices of :attr:`rows`; negative entries are left out.
            embeddings: ``(B, dim)`` f(v_I), normalised here; what is not finite is left out.
            momentum: m; None: the bank's. With 0, rows become the embeddings.

        Returns:
            ``(2,)`` float32: the summed norms of the moved rows before they were normalised, and
            their number. The mean is 1 where embeddings agree with what the bank remembers, and
            0.71 (for m = 0.5) where they are orthogonal to it.
        """
        if len(rows) == 0:
            return torch.zeros(2, device=rows.device)
        # All shapes below are (B, …), whatever the rows are: nothing waits for a GPU to count the
        # distinct ones. With G of them, entries G … B − 1 of what is "per group" are unused.

        # 1. Sort, so that equal rows follow each other and invalid ones (−1) come first, and number
        #    the groups of equal rows: rows (−1, 3, 3, 7) → group (0, 1, 1, 2).
        length = embeddings.double().norm(dim=1)  # in float64 it is finite where they are
        rows, order = torch.where(length < torch.inf, rows, -1).sort(stable=True)
        embeddings = embeddings[order].double()
        embeddings /= length[order].clamp(min=_EPS)[:, None]
        is_first = torch.ones_like(rows, dtype=torch.bool)
        is_first[1:] = rows[1:] != rows[:-1]
        group = is_first.cumsum(0) - 1

        # 2. The mean embedding of each group, and its row: (−1, 3, 7, unused: −1).
        mean = torch.zeros_like(embeddings)
        mean.index_add_(0, group, embeddings)  # in float64, rounding hides the order of addition
        del embeddings  # half of the memory that is held from here on
        repeats = torch.zeros_like(rows).index_add_(0, group, torch.ones_like(rows))
        mean /= repeats.clamp(min=1)[:, None]
        group_row = torch.full_like(rows, -1).index_copy_(0, group, rows)
        valid = group_row >= 0

        # 3. The moving average. Invalid and unused groups compute with the last group's row, the
        #    largest, and are overwritten with its outcome: they write what it writes.
        index = torch.where(valid, group_row, rows[-1]).clamp(min=0)
        weight = self.momentum if momentum is None else momentum
        moved = mean.lerp_(self.rows[index].double(), weight)
        length = moved.norm(dim=1)
        moved /= length.clamp(min=_EPS)[:, None]
        outcome = moved.to(self.rows.dtype)
        outcome = torch.where(valid[:, None], outcome, outcome.index_select(0, group[-1:]))

        # 4. Write. Without any valid row, the index is 0 and row 0 is written as it was.
        any_valid = valid.any()
        self.rows[index] = torch.where(any_valid, outcome, self.rows[index])
        self.visited[index] |= any_valid
        return torch.stack([torch.where(valid, length, 0).sum(), valid.sum()]).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        device = fn(self.visited[:0]).device
        self.rows, self.visited = self.rows.to(device), self.visited.to(device)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        if self.persistent:
            destination.update({f"{prefix}rows": self.rows, f"{prefix}visited": self.visited})

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        *_, missing, unexpected, errors = arguments
        tensors = {"rows": self.rows, "visited": self.visited} if self.persistent else {}
        unexpected += state_dict.keys() - {f"{prefix}{name}" for name in tensors}
        for name, tensor in tensors.items():
            found = state_dict.get(f"{prefix}{name}")
            if found is None:
                missing.append(f"{prefix}{name}")
            elif found.shape != tensor.shape:
                errors.append(f"{prefix}{name} is {found.shape}: expected {tensor.shape}")
            else:
                tensor.copy_(found)

    def extra_repr(self) -> str:
        """Shape, type and momentum, for the log."""
        shape = tuple(self.rows.shape)
        return f"rows={shape} of {self.num_rows}, {self.rows.dtype}, momentum={self.momentum}"


def _initial_rows(start: int, stop: int, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Positions ``start`` to ``stop`` of the random bank of ``seed``."""
    rows = advise_huge_pages(torch.empty(stop - start, dim, dtype=dtype))
    values = torch.empty(_BLOCK, dim)
    for block in range(start // _BLOCK, -(-stop // _BLOCK)):
        generator = torch.Generator().manual_seed((seed * 0x9E3779B1 + block) & 0xFFFFFFFF)
        values.uniform_(-1, 1, generator=generator)
        values /= values.norm(dim=1, keepdim=True)
        first, last = max(start, block * _BLOCK), min(stop, (block + 1) * _BLOCK)
        rows[first - start : last - start] = values[first - block * _BLOCK : last - block * _BLOCK]
    return rows
