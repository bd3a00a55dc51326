# ruff: noqa: E402 (the import hook is installed first)
"""The code that the recording records: the one module of the recording that imports it.

Where the package moves or renames something, this module follows; recording and test stay.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton, as in conftest.py

from pirl_plugin.host.import_hook import finder

finder.install()

from pirl_plugin.data import vissl_transforms as transforms
from pirl_plugin.data.sources.vissl_source import SourceImage
from pirl_plugin.data.views.permutations import PermutationSet
from pirl_plugin.data.views.random import image_generator
from pirl_plugin.data.vissl_collator import pirl_collator
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank, ShardedMemoryBank, draw_negatives
from pirl_plugin.memory.feistel import FeistelPermutation
from pirl_plugin.memory.permutation import RowPermutation
from tests.helpers.processes import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable

BANKS = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}

__all__ = ["run_in_processes"]


def make_loss(**keys: Any) -> Any:
    """Build the loss from the keys of ``LOSS.pirl_loss``."""
    return PIRLLoss(**keys)


def update(loss: Any, rows: Tensor, embeddings: Tensor) -> Tensor:
    """Collective: move the bank towards f(v_I) of all ranks, and count the step.

    Returns:
        ``(2,)`` float32: the summed norms of the moved rows, and their number.
    """
    loss.update(rows, embeddings)
    moved: Tensor = loss.last_step.moved
    return moved


def norm_constant(loss: Any) -> float:
    """Z; NaN where it is unknown."""
    return float(loss.norm_constant)


def terms(loss: Any) -> dict[str, float]:
    """L_NCE of each output in the last batch, by name."""
    return {name: float(value) for name, value in loss.last_step.terms.items()}


def bank_rows(loss: Any) -> Tensor:
    """Collective: ``(|D|, D)`` float32, all rows in the order of the data set."""
    # Every rank asks for all rows: a sharded bank returns to each the rows that it asked for.
    rows: Tensor = loss.bank.lookup(torch.arange(loss.bank.num_rows))
    return rows.float()


def visited(loss: Any) -> Tensor:
    """``(rows held,)`` bool, whether this rank's rows have been moved, in the order held."""
    flags: Tensor = loss.bank.visited
    return flags


def initial_rows(placement: str, **keys: Any) -> Tensor:
    """``(rows held, D)``, a new bank in one process."""
    rows: Tensor = BANKS[placement](**keys).rows
    return rows


def positions(num_rows: int, seed: int | None) -> Tensor:
    """``(num_rows,)`` int64, where each row is put; with a seed by the permutation of version 1."""
    permutation = RowPermutation(num_rows) if seed is None else FeistelPermutation(num_rows, seed)
    return permutation.position(torch.arange(num_rows))


def draw(
    rows: Tensor, num_rows: int, num_negatives: int, seed: int, step: int, **options: Any
) -> Tensor:
    """``(B, N)`` int64, the negatives of each image."""
    return draw_negatives(rows, num_rows, num_negatives, seed, step, **options)


def make_views(name: str, **parameters: Any) -> Callable[..., dict[str, Any]]:
    """Build a registered transform.

    Returns:
        A function of pixels uint8 (3, H, W), seed, epoch, row in the data set and whether the image
        is valid, that returns the transformed sample: ``data``, ``data_idx``, ``data_valid``.
    """
    transform = getattr(transforms, name).from_config({"name": name, "indices": [0], **parameters})

    def apply(
        pixels: Tensor, seed: int, epoch: int, row: int, valid: bool = True
    ) -> dict[str, Any]:
        image = SourceImage(pixels, seed, epoch)
        sample = {"data": [image], "data_idx": [row], "data_valid": [1 if valid else -1]}
        result: dict[str, Any] = transform(sample)
        return result

    return apply


def collate(samples: list[dict[str, Any]]) -> dict[str, list[Tensor]]:
    """Join transformed samples into a batch."""
    return pirl_collator(samples)


def first_words(seed: int, epoch: int, index: int, count: int) -> list[int]:
    """The first 64-bit words of an image's generator."""
    return [int(w) for w in image_generator(seed, epoch, index).bit_generator.random_raw(count)]


def orders(num_permutations: int, num_patches: int, seed: int) -> Tensor:
    """``(num_permutations, num_patches)`` int8, the permutation set."""
    return torch.from_numpy(PermutationSet(num_permutations, num_patches, seed).orders)


def drawn_orders(num_permutations: int | None, num_patches: int, seed: int, count: int) -> Tensor:
    """``(count, 1 + num_patches)`` int64, orders drawn from a set, each after its number."""
    chosen, rng = PermutationSet(num_permutations, num_patches), np.random.default_rng(seed)
    drawn = [chosen.draw(rng) for _ in range(count)]
    return torch.tensor([[number, *order.tolist()] for number, order in drawn])
