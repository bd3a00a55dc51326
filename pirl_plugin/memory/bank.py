"""The memory bank m: a unit vector for each image, the moving average of f(v_I) (Sec. 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class MemoryBank(nn.Module):
    """``num_rows`` unit vectors, random at first, as in Wu et al. 2018.

    Args:
        num_rows: |D|, the number of images.
        dim: width of the embeddings, 128 in the paper.
        momentum: weight of the old row in the moving average, 0.5 in the paper.
        dtype: ``float32``, ``bfloat16`` or ``float16``; arithmetic is float32 in any case.
        seed: of the initial rows.

    Attributes:
        rows: ``(num_rows, dim)``, the unit vectors.

    Raises:
        ValueError: an argument cannot be used.
    """

    rows: Tensor

    def __init__(
        self, num_rows: int, dim: int, momentum: float = 0.5, dtype: str = "float32", seed: int = 0
    ) -> None:
        super().__init__()
        if num_rows < 2:
            raise ValueError(
                f"a memory bank of {num_rows} rows: contrast needs at least 2 images; check "
                f"config.DATA.TRAIN.DATA_PATHS"
            )
        if not 0 <= momentum < 1:
            raise ValueError(
                f"bank.momentum = {momentum}: expected a weight in [0, 1), such as 0.5"
            )
        if dtype not in DTYPES:
            raise ValueError(f"bank.dtype = {dtype!r}: expected one of {', '.join(DTYPES)}")
        self.momentum = momentum
        generator = torch.Generator().manual_seed(seed)
        rows = torch.rand(num_rows, dim, generator=generator).mul_(2).sub_(1)
        self.register_buffer("rows", normalize(rows, out=rows).to(DTYPES[dtype]))

    @torch.no_grad()
    def update(self, rows: Tensor, embeddings: Tensor) -> Tensor:
        """Move rows towards new embeddings: row ← normalise(m·row + (1 − m)·f).

        A row that occurs several times (samplers pad by repetition) moves once, towards the mean of
        its embeddings, so that the outcome does not depend on their order.

        Args:
            rows: ``(B,)`` int64; negative entries are left out.
            embeddings: ``(B, dim)`` f(v_I), normalised here.

        Returns:
            Mean norm of the moved rows before they were normalised, scalar float32: 1 where
            embeddings agree with what the bank remembers, 0.71 where they are orthogonal to it.
        """
        valid = rows >= 0
        rows, embeddings = rows[valid], normalize(embeddings[valid].double())
        unique, where = rows.unique(return_inverse=True)
        if unique.numel() == 0:
            return torch.zeros((), device=embeddings.device)
        mean = embeddings.new_zeros(unique.numel(), embeddings.shape[1])
        mean.index_add_(0, where, embeddings)  # float64: the order of summation leaves no trace
        mean /= where.bincount(minlength=unique.numel())[:, None]
        moved = torch.lerp(mean, self.rows[unique].double(), self.momentum)
        self.rows[unique] = normalize(moved).to(self.rows.dtype)
        return moved.norm(dim=1).mean().float()

    def extra_repr(self) -> str:
        """Shape, type and momentum, for the log."""
        shape = tuple(self.rows.shape)
        return f"rows={shape}, dtype={self.rows.dtype}, momentum={self.momentum}"
