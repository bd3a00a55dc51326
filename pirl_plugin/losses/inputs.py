"""Checks of what the loss is given: embeddings, rows and draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.losses.engines.base import is_shared
from pirl_plugin.memory.checks import check_embeddings, check_rows
from pirl_plugin.utils.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_shapes(outputs: Sequence[Tensor], target: Tensor, dim: int) -> None:
    """Refuse embeddings that do not fit the bank.

    Args:
        outputs: each ``(B, dim)``.
        target: ``(B,)``.
        dim: width of the bank's rows.

    Raises:
        ValueError: there is none, or one is of another shape or type.
    """
    if not outputs:
        raise ValueError(
            "pirl_loss got no embeddings: expected [g(v_It), f(v_I)], or f(v_I) alone; give the "
            "heads' outputs"
        )
    for embeddings in outputs:
        check_embeddings(embeddings, target.numel(), dim)


def check_negatives(target: Tensor, negatives: Tensor | None) -> None:
    """Refuse a draw of another shape or type than the images'.

    Args:
        target: ``(B,)``.
        negatives: ``(B, N)``, or None.

    Raises:
        ValueError: it is of another shape or type.
    """
    if negatives is None:
        return
    if not isinstance(negatives, Tensor):
        raise ValueError(
            f"negatives is a {type(negatives).__name__}: expected a torch tensor, int64 "
            f"({len(target)}, N); give torch.as_tensor(negatives), or None"
        )
    fits = negatives.ndim == 2 and len(negatives) == len(target) and negatives.shape[1] > 0
    if not fits or negatives.dtype != torch.int64:
        raise ValueError(
            f"negatives are {negatives.dtype} of shape {tuple(negatives.shape)}: expected int64 "
            f"({len(target)}, N), rows of the data set for each image; give such a draw, or None"
        )


def find_outside(
    target: Tensor, negatives: Tensor | None, num_rows: int
) -> tuple[Tensor, Tensor | None]:
    """Whether a row is outside the bank, and a draw with 0 for those of its rows that are.

    Args:
        target: ``(B,)`` int64, −1 for an image that is left out.
        negatives: ``(B, N)`` int64, or None.
        num_rows: |D|.

    Returns:
        A scalar bool, and ``(B, N)`` int64 or None.

    Raises:
        ValueError: on a CPU, a row is outside the bank; a GPU would have to be waited for.
    """
    on_cpu = target.device.type == "cpu"
    if on_cpu:
        check_rows(target, num_rows)
        if target.numel() and int(target.min()) < -1:
            raise ValueError(
                f"target holds {int(target.min())}: expected each image's row in the data set, or "
                f"-1 for an image that is left out; give such rows"
            )
    outside = ((target >= num_rows) | (target < -1)).any()
    if negatives is None:
        return outside, None
    drawn = negatives[:1] if is_shared(negatives) else negatives  # one draw stays one
    wrong = (drawn < 0) | (drawn >= num_rows)
    if on_cpu and wrong.any():
        raise ValueError(
            f"negatives hold row {int(drawn[wrong][0])}: expected rows from 0 to "
            f"{num_rows - 1}, those of the memory bank; give rows of its data set"
        )
    return outside | wrong.any(), drawn.masked_fill(wrong, 0).expand_as(negatives)


def unit(embedding: Tensor, valid: Tensor) -> Tensor:
    """Unit-norm rows, in float32 or wider; zeros where they are not valid."""
    return normalize(at_least_float32(torch.where(valid[:, None], embedding, 0)))
