"""The memory bank m: a unit vector for each image, the moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.method.index_check import IndexCheck, as_index
from pirl_plugin.system.failures import (
    Refused,
    check,
    check_name,
    check_whole,
    is_number,
    type_and_shape,
)
from pirl_plugin.system.ranks import (
    errors_on_all_ranks,
    gather,
    gather_objects,
    rank,
    world_size,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BLOCK = 65_536  # rows drawn from one generator; their values are the same on any rank
_SEED_FACTOR = 0x9E3779B1  # so that the generators of near seeds and blocks differ
_EPSILON = 1e-12  # as in torch.nn.functional.normalize


class MemoryBank(nn.Module):
    """``num_rows`` unit vectors, random at first (Wu et al. 2018); each rank holds all of them.

    ``to`` moves the rows to a device and ``state_dict`` has them, but they are not buffers:
    ``DistributedDataParallel`` sends buffers to all ranks at each step, and ``half()`` casts them.

    :meth:`update` does not wait for a GPU. An index outside the data set is then refused a little
    later: see :class:`~pirl_plugin.method.index_check.IndexCheck`.

    Args:
        num_rows: |D|, the number of images.
        dim: width of the embeddings, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; arithmetic is always float32 or wider.
        seed: seed of the initial rows.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.
        visited: ``(num_rows,)`` bool, whether a row has been updated yet.
        index_check: refuses indices outside the data set.
        replicated: whether each rank has all rows; then ``state_dict`` has them too.

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
    replicated = True
    # Row r of this rank belongs to the image _rank + r·_ranks.
    _rank = 0
    _ranks = 1

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        check_whole("num_rows", num_rows, least=2)
        check_whole("dim", dim, least=1)
        check_momentum("momentum", momentum)
        check_name("dtype", dtype, DTYPES)
        check_whole("seed", seed)
        self.num_rows = num_rows
        self.momentum = momentum
        self.rows = self._initial_rows(dim, seed, DTYPES[dtype])
        self.visited = torch.zeros(len(self.rows), dtype=torch.bool, device=self.rows.device)
        self.index_check = IndexCheck(num_rows)

    def _initial_rows(self, dim: int, seed: int, dtype: torch.dtype) -> Tensor:
        """Draw the random rows that this rank holds."""
        num_local = len(range(self._rank, self.num_rows, self._ranks))
        # Numpy asks Linux for huge pages: random reads then need fewer address look-ups.
        memory = np.empty(num_local * dim * dtype.itemsize, np.uint8)
        # On the CPU, also within torch.device("cuda") or Lightning's configure_model.
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
        """Return the vectors of given images: ``(B, dim)`` for ``(B,)`` int64.

        Raises:
            ValueError: the index is not an int64 tensor, or an entry is outside the data set. This
                check waits for a GPU.
        """
        index = as_index(index)
        self.index_check.check(index, lowest=0, wait=True)
        return self.fetch(index)

    def fetch(self, index: Tensor) -> Tensor:
        """Return the vectors of given images as :meth:`lookup` does, without a check."""
        return self.rows[index]

    def local_index(self, index: Tensor) -> Tensor:
        """Return where in :attr:`rows` given images are, ``(B,)`` int64; −1 on another rank.

        Args:
            index: ``(B,)`` int64, rows of the data set; −1 stays −1.
        """
        is_local = (index >= 0) & (index % self._ranks == self._rank)
        return torch.where(is_local, index // self._ranks, -1)

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
            index: ``(B,)`` int64, this rank's rows of the data set; −1 leaves an image out.
            embeddings: ``(B, dim)`` f(v_I), normalised here.
            momentum: weight of the old rows; None: the bank's own.

        Returns:
            The result of :meth:`move` for this rank's rows.

        Raises:
            ValueError: the embeddings have another shape; a row is outside the bank. On a GPU, a
                later call raises this.
            FloatingPointError: on a CPU, an embedding is not finite on some rank. All ranks raise
                it, and no row has moved. On a GPU, such an image is left out.
        """
        index = self.check_batch(index, embeddings)
        embeddings = embeddings.detach().float()
        if index.device.type == "cpu":
            with errors_on_all_ranks():
                self.index_check.check(index)
                not_finite = (index >= 0) & ~embeddings.isfinite().all(dim=1)
                if not_finite.any():
                    raise FloatingPointError(
                        f"embeddings f(v_I) of the rows {index[not_finite].tolist()[:8]} on rank "
                        f"{rank()} are not finite: the bank did not change; lower the learning "
                        f"rate, or look at these images"
                    )
        else:
            self.index_check.check(index)
        index = index.masked_fill(index >= self.num_rows, -1)  # refused later
        return self.move(*self.exchange(index, embeddings), momentum)

    def check_batch(self, index: Tensor, embeddings: Tensor, name: str = "embeddings") -> Tensor:
        """Return the index as ``(B,)``.

        Args:
            index: ``(B,)`` int64.
            embeddings: ``(B, dim)``.
            name: what a message calls the embeddings.

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
                f"{shape}, a row for each index and embedding_dim columns; check out_dim and "
                f"num_patches of the head"
            )
        return index

    @torch.no_grad()
    def move(self, index: Tensor, embeddings: Tensor, momentum: float | None = None) -> Tensor:
        """Move rows towards new embeddings: row ← normalise(m·row + (1 − m)·f).

        A row that occurs several times (samplers pad by repetition) moves once, towards the mean of
        its normalised embeddings, so that the order does not matter. This does not wait for a GPU:
        all tensors have n rows, however many of them are left out or repeated.

        Args:
            index: ``(n,)`` int64, indices into :attr:`rows`; negative entries are left out.
            embeddings: ``(n, dim)`` f(v_I), normalised here; those that are 0 or not finite are
                left out.
            momentum: m; None: the bank's own. With 0, rows become the embeddings.

        Returns:
            ``(2,)`` float32: the sum of the norms of the moved rows before normalisation, and
            the number of these rows. The mean norm is 1 if embeddings equal their rows, and 0.71
            (for m = 0.5) if they are orthogonal.
        """
        if momentum is None:
            momentum = self.momentum
        check_momentum("momentum", momentum)
        if len(index) == 0:
            return torch.zeros(2, device=index.device)
        # In float64 the order of sums does not matter.
        embeddings = embeddings.double()
        norms = embeddings.norm(dim=1, keepdim=True)  # n×1
        valid = (index >= 0) & (norms[:, 0] > 0) & (norms[:, 0] < torch.inf)  # n; NaN is neither
        left_out = ~valid
        f = (embeddings / norms.clamp_min(_EPSILON)).masked_fill(left_out[:, None], 0)  # n×D

        # An entry that is left out joins a row that moves, with weight 0. If no row moves, it is
        # written to row 0, which keeps its value.
        last_moving = index.masked_fill(left_out, -1).amax()
        index = torch.where(valid, index, last_moving.clamp_min(0))
        # Entries of the same row share a place: the first place of the row in the sorted index. The
        # other places of a row stay empty: index 5, 2, 5 is sorted 2, 5, 5 and has places 1, 0, 1.
        sorted_index = index.sort().values
        place = torch.searchsorted(sorted_index, index)  # n
        count = f.new_zeros(len(f)).index_add_(0, place, valid.to(f.dtype))  # n
        total = torch.zeros_like(f).index_add_(0, place, f)  # n×D
        mean = total / count.clamp_min(1)[:, None]

        old = self.rows[sorted_index]
        moved = mean.lerp(old.to(f.dtype), momentum)  # (1 − m)·f + m·row
        moved_norms = moved.norm(dim=1, keepdim=True)
        new = (moved / moved_norms.clamp_min(_EPSILON)).to(old.dtype)
        # An embedding that is the opposite of its row may cancel it: the row keeps its value.
        moves = (count > 0) & (moved_norms[:, 0] > _EPSILON)
        new = torch.where(moves[:, None], new, old)
        # All entries of a row write the same value, that of their place.
        self.rows[index] = new[place]
        # If any row moves, all entries are of rows that move.
        self.visited[index] = self.visited[index] | (last_moving >= 0)
        in_a_place = moves.to(f.dtype)  # 1 for each row that moves
        return torch.stack([(moved_norms[:, 0] * in_a_place).sum(), in_a_place.sum()]).float()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Take only the device from `fn`: that of `half()` would also cast the rows.
        device = fn(self.visited[:0]).device
        if device != self.rows.device:
            self.rows = self.rows.to(device)
            self.visited = self.visited.to(device)
            self.index_check = IndexCheck(self.num_rows)
        return super()._apply(fn, recurse)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        if self.replicated:
            destination.update({f"{prefix}rows": self.rows, f"{prefix}visited": self.visited})

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if not self.replicated:
            return
        missing = [f"{prefix}{name}" for name in ("rows", "visited")]
        missing = [key for key in missing if key not in state_dict]
        if missing:
            missing_keys.extend(missing)
            return
        rows = state_dict[f"{prefix}rows"]
        visited = state_dict[f"{prefix}visited"]
        check_loaded_size(tuple(rows.shape), tuple(self.rows.shape))
        check_loaded_rows(f"{prefix}rows", rows)
        self.rows.copy_(rows)
        self.visited.copy_(visited)


def check_loaded_size(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if a checkpoint's bank has another size than this run's."""
    if shape != expected:
        raise Refused(
            f"the checkpoint's memory bank is {shape}, this run's is {expected} (images, "
            f"embedding_dim): give the data set and the embedding_dim of the checkpoint, or start "
            f"again without it"
        )


def check_loaded_rows(name: str, rows: Tensor) -> None:
    """Raise ``ValueError`` if loaded rows are not finite or not of unit norm.

    Args:
        name: where the rows were found, for the message.
        rows: ``(n, dim)``.
    """
    # A row in bfloat16 has a norm within 0.4 % of 1. NaN is not below the limit.
    is_unit = (rows.float().norm(dim=1) - 1).abs() < 0.01
    if not is_unit.all():
        raise Refused(f"{name} has rows that are not of unit norm: resume from an older checkpoint")


def check_momentum(name: str, momentum: float) -> None:
    """Raise ``ValueError`` if the weight of the old rows cannot be used."""
    fits = is_number(momentum) and 0 <= momentum < 1
    check(name, momentum, fits, "a number in [0, 1), the weight of the old row")
