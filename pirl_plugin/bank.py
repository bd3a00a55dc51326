"""The memory bank m: a unit vector for each image, the moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.distributed import gather, gather_objects, on_all_ranks, rank, world_size
from pirl_plugin.failures import Refused
from pirl_plugin.scores import wide_type

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BLOCK = 65_536  # rows drawn from one generator; their values are the same on any rank
_HUGE_PAGE = 2**21


class MemoryBank(nn.Module):
    """``num_rows`` unit vectors, random at first (Wu et al. 2018); each rank holds all of them.

    ``to`` moves the rows to a device and ``state_dict`` has them, but they are not buffers:
    ``DistributedDataParallel`` sends buffers to all ranks at each step, and ``half()`` casts them.

    Args:
        num_rows: |D|, the number of images.
        dim: width of the embeddings, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; arithmetic is always float32 or wider.
        seed: seed of the initial rows.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.
        visited: ``(num_rows,)`` bool, whether a row has been updated yet.
        persistent: whether the rows are part of ``state_dict``.

    Raises:
        ValueError: there are fewer than 2 rows.

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
    _first, _every = 0, 1  # the first row's image, and the step from a row's image to the next

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        if num_rows < 2:
            raise Refused(
                f"num_train_samples = {num_rows}: expected at least 2 images to contrast; check "
                f"the data set (config.DATA.TRAIN.DATA_PATHS)"
            )
        self.num_rows, self.momentum = num_rows, momentum
        self.rows = self._initial_rows(dim, seed, DTYPES[dtype])
        self.visited = torch.zeros(len(self.rows), dtype=torch.bool)

    def _initial_rows(self, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
        """Draw the random rows that this rank holds."""
        number = len(range(self._first, self.num_rows, self._every))
        rows, filled = _advise_huge_pages(torch.empty(number, dim, dtype=dtype)), 0
        for block, start in enumerate(range(0, self.num_rows, _BLOCK)):
            generator = torch.Generator().manual_seed((seed * 0x9E3779B1 + block) & 0xFFFFFFFF)
            values = torch.empty(_BLOCK, dim).uniform_(-1, 1, generator=generator)
            values = values[: self.num_rows - start]
            here = values[(self._first - start) % self._every :: self._every]
            rows[filled : filled + len(here)] = normalize(here)
            filled += len(here)
        return rows

    def lookup(self, index: Tensor) -> Tensor:
        """Return the vectors of given images: ``(B, dim)`` for ``(B,)`` int64.

        Raises:
            ValueError: on a CPU, an index is outside the data set.
        """
        self.check_inside(index)
        return self.rows[index]

    def local_index(self, index: Tensor) -> Tensor:
        """Return where in :attr:`rows` given images are, ``(B,)`` int64; −1 on another rank.

        Args:
            index: ``(B,)`` int64, rows of the data set; −1 stays −1.
        """
        here = (index >= 0) & (index % self._every == self._first)
        return torch.where(here, index // self._every, -1)

    def exchange(self, index: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Gather the embeddings that move this rank's rows, from all ranks. Collective.

        Args:
            index: ``(B,)`` int64, this rank's images, the same B on each rank; negative: left out.
            embeddings: ``(B, dim)``, the embeddings of these images.

        Returns:
            Indices into :attr:`rows` ``(n,)`` and embeddings ``(n, dim)``, for :meth:`move`.

        Raises:
            ValueError: on a CPU, the ranks have different B.
        """
        if index.device.type == "cpu" and world_size() > 1:
            sizes = gather_objects(len(index))
            if len(set(sizes)) > 1:
                raise Refused(
                    f"batches of {sizes} images on the ranks: expected equal sizes; give the "
                    f"loader drop_last=True, or take bank = {{'placement': 'sharded'}}"
                )
        return gather(index), gather(embeddings)

    def update(self, index: Tensor, embeddings: Tensor, momentum: float | None = None) -> Tensor:
        """Exchange embeddings between the ranks, and :meth:`move` their rows. Collective.

        Args:
            index: ``(B,)`` int64, this rank's rows of the data set; negative entries are left out.
            embeddings: ``(B, dim)`` f(v_I), normalised here.
            momentum: weight of the old rows; None: the bank's own.

        Raises:
            ValueError: the embeddings have another shape; on a CPU, a row is outside the bank.
            FloatingPointError: on a CPU, an embedding is not finite on some rank. All ranks raise
                it, and no row has moved.
        """
        index, embeddings = self.check_batch(index, embeddings), embeddings.detach().float()
        if index.device.type == "cpu":
            on_all_ranks(lambda: self._check_values(index, embeddings))
        index = index.masked_fill(index >= self.num_rows, -1)  # the loss is NaN for such a batch
        return self.move(*self.exchange(index, embeddings), momentum)

    def check_batch(self, index: Tensor, embeddings: Tensor) -> Tensor:
        """Return the index as ``(B,)``.

        Raises:
            ValueError: it is not int64, or the embeddings are not floating ``(B, dim)``.
        """
        if index.dtype != torch.int64:
            raise Refused(f"index is of {index.dtype}: expected int64, rows of the data set")
        index, expected = index.reshape(-1), (index.numel(), self.rows.shape[1])
        if embeddings.shape != expected or not embeddings.is_floating_point():
            raise Refused(
                f"embeddings are {embeddings.dtype} of shape {tuple(embeddings.shape)}: expected "
                f"floats {expected}; the head's out_dim must be LOSS.pirl_loss.embedding_dim, and "
                f"num_patches of g the number of patches"
            )
        return index

    def _check_values(self, index: Tensor, embeddings: Tensor) -> None:
        self.check_inside(index.clamp(min=0))
        bad = (index >= 0) & ~embeddings.isfinite().all(dim=1)
        if bad.any():
            raise FloatingPointError(
                f"embeddings f(v_I) of the rows {index[bad].tolist()[:8]} on rank {rank()} are not "
                f"finite: the bank did not change; lower the learning rate, or look at these "
                f"images"
            )

    def check_inside(self, index: Tensor) -> None:
        """Raise ``ValueError`` if an index is outside the bank; do not check on a GPU."""
        if index.device.type != "cpu" or not index.numel():
            return
        wrong = (index < 0) | (index >= self.num_rows)
        if wrong.any():
            raise Refused(
                f"row {int(index[wrong][0])} is outside the memory bank of {self.num_rows} rows: "
                f"give each image's number in the data set, and its size as num_train_samples "
                f"(LOSS.pirl_loss.num_train_samples)"
            )

    @torch.no_grad()
    def move(self, index: Tensor, embeddings: Tensor, momentum: float | None = None) -> Tensor:
        """Move rows towards new embeddings: row ← normalise(m·row + (1 − m)·f).

        A row that occurs several times (samplers pad by repetition) moves once, towards the mean of
        its normalised embeddings, so that the order does not matter.

        Args:
            index: ``(n,)`` int64, indices into :attr:`rows`; negative entries are left out.
            embeddings: ``(n, dim)`` f(v_I), normalised here; rows that are not finite are left out.
            momentum: m; None: the bank's own. With 0, rows become the embeddings.

        Returns:
            ``(2,)`` float32: the sum of the norms of the moved rows before normalisation, and
            the number of these rows. The mean norm is 1 if embeddings equal their rows, and 0.71
            (for m = 0.5) if they are orthogonal.
        """
        m, wide = self.momentum if momentum is None else momentum, wide_type(self.rows.device)
        valid = (index >= 0) & embeddings.isfinite().all(dim=1)
        f = normalize(embeddings[valid].to(wide))  # float64: the order of sums does not matter
        index, group, count = index[valid].unique(return_inverse=True, return_counts=True)
        mean = f.new_zeros(len(index), f.shape[1]).index_add_(0, group, f) / count[:, None]
        moved = mean.lerp(self.rows[index].to(wide), m)  # (1 − m)·f + m·row
        self.rows[index] = normalize(moved).to(self.rows.dtype)
        self.visited[index] = True
        norms = moved.norm(dim=1).sum()
        return torch.stack([norms, torch.full_like(norms, len(index))]).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
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
        *_, missing, _unexpected, _errors = arguments
        tensors = {"rows": self.rows, "visited": self.visited} if self.persistent else {}
        for name, tensor in tensors.items():
            found = state_dict.get(f"{prefix}{name}")
            if found is None:
                missing.append(f"{prefix}{name}")
            else:
                check_size(tuple(found.shape), tuple(tensor.shape))
                if not found.isfinite().all():
                    raise Refused(
                        f"{prefix}{name}: expected finite values; resume from an older checkpoint"
                    )
                tensor.copy_(found)


def check_size(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if a checkpoint's bank has another size than this run's."""
    if found != expected:
        raise Refused(
            f"the checkpoint's memory bank is {found}, this run's is {expected} (images, "
            f"embedding_dim): point config.DATA.TRAIN at the same data, or start again in another "
            f"config.CHECKPOINT.DIR"
        )


def _advise_huge_pages(tensor: Tensor) -> Tensor:
    """Ask Linux for huge pages for a new tensor: random reads then need fewer address look-ups."""
    if sys.platform == "linux" and tensor.nbytes >= 32 * _HUGE_PAGE:
        start = -(-tensor.data_ptr() // _HUGE_PAGE) * _HUGE_PAGE
        length = (tensor.data_ptr() + tensor.nbytes - start) // _HUGE_PAGE * _HUGE_PAGE
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        madvise(start, length, mmap.MADV_HUGEPAGE)
    return tensor
