"""Rows and embeddings that a memory bank cannot take."""

from __future__ import annotations

import torch
from torch import Tensor

from pirl_plugin.distributed import rank, sum_over_ranks, world_size


def row_vector(name: str, rows: Tensor) -> Tensor:
    """Return rows of the data set as ``(B,)``; int32 overflows where a sharded bank deals them.

    Raises:
        ValueError: they are no tensor, or one of another type.
    """
    if not isinstance(rows, Tensor) or rows.dtype != torch.int64:
        raise ValueError(
            f"{name} is {_kind(rows)}: expected int64, each image's row in the data set; give "
            f"the data set's indices"
        )
    return rows.reshape(-1)


def check_embeddings(embeddings: Tensor, num_images: int, dim: int) -> None:
    """Raise where embeddings are not floats ``(num_images, dim)``.

    Raises:
        ValueError: they are not.
    """
    wanted = f"({num_images}, {dim})"
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        raise ValueError(
            f"embeddings are {_kind(embeddings)}: expected a tensor of floats {wanted}; give the "
            f"head's output"
        )
    if embeddings.shape != (num_images, dim):
        remedy = "make the head's out_dim and LOSS.pirl_loss.embedding_dim equal"
        if embeddings.ndim == 2 and embeddings.shape[1] == dim:
            remedy = "give the row and the embedding of each image"
        raise ValueError(
            f"embeddings are of shape {tuple(embeddings.shape)} for {num_images} images: expected "
            f"{wanted}; {remedy}"
        )


def _kind(found: object) -> str:
    return str(found.dtype) if isinstance(found, Tensor) else f"a {type(found).__name__}"


def check_equal_batches(size: int) -> None:
    """Collective: raise, on all ranks, where the batches of the ranks are of different sizes.

    Raises:
        ValueError: they are.
    """
    total, squares = sum_over_ranks(torch.tensor([size, size**2])).tolist()
    if world_size() * squares != total**2:
        raise ValueError(
            f"a batch of {size} images on rank {rank()} and {total} on all {world_size()}: "
            f"expected as many on each rank; give the loader drop_last=True, or take bank = "
            f"{{'placement': 'sharded'}}, which needs no equal batches"
        )


def check_rows(rows: Tensor, num_rows: int) -> None:
    """Raise where a row is outside the bank; the host waits for a GPU.

    Raises:
        ValueError: a row is; names it.
    """
    if rows.numel() and int(rows.max()) >= num_rows:
        raise ValueError(
            f"row {int(rows.max())} is outside the memory bank of {num_rows} rows: the bank was "
            f"made for another data set; set num_train_samples to the number of this one's images "
            f"(LOSS.pirl_loss.num_train_samples)"
        )


def not_finite(rows: Tensor, embeddings: Tensor) -> Tensor:
    """Which of valid rows' embeddings are not finite: ``(B,)`` bool."""
    return ~embeddings.isfinite().all(dim=1) & (rows >= 0)


def check_finite(rows: Tensor, embeddings: Tensor) -> None:
    """Raise where the embedding of a valid row is not finite; the host waits for a GPU.

    Raises:
        FloatingPointError: one is; names the rows.
    """
    bad = not_finite(rows, embeddings)
    if bad.any():
        raise FloatingPointError(
            f"the embeddings of rows {rows[bad][:8].tolist()} are not finite: expected numbers; "
            f"the bank was left as it was; lower the learning rate, or look at these images"
        )
