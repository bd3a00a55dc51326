"""What the loss did last, for reports."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.losses.engines.base import ContrastBatch

_FORGOTTEN = 100  # batches without an update, after which one is asked for


@dataclass
class LastStep:
    """What the last training step did: written by the loss alone, read by whoever reports it.

    Attributes:
        terms: L_NCE of each output, unweighted, by name; the mean over ranks is the mean over all
            valid rows. Terms of weight 0 are not computed and not in it.
        moved: ``(2,)``, what :meth:`pirl_plugin.memory.MemoryBank.move` returned.
        queries: the outputs that were scored, of unit norm, by the names of ``terms``: ``(B, D)``,
            without a graph.
        positives: ``(B, D)``, their rows m_I of the bank, as they were then.
        valid: ``(B,)`` bool; of the others, queries and positives say nothing.
    """

    terms: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor = field(default_factory=lambda: torch.zeros(2))
    queries: dict[str, Tensor] = field(default_factory=dict)
    positives: Tensor = field(default_factory=lambda: torch.zeros(0))
    valid: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    _batches: int = 0  # since the bank was last updated

    def end(self, moved: Tensor) -> None:
        """Take what the bank's update returned."""
        self.moved, self._batches = moved, 0

    def record(
        self, names: Sequence[str], means: Tensor, batch: ContrastBatch, valid: Tensor, adds: bool
    ) -> None:
        """Take what a batch gave; with ``adds``, a micro-batch's, which adds to the ones before.

        Args:
            names: of the T terms.
            means: ``(T,)``, their values.
            batch: what was compared.
            valid: ``(B,)`` bool.
            adds: whether this is a further part of the step.
        """
        further = adds and bool(self.terms)
        self._batches += not further
        if self._batches == _FORGOTTEN and not further:
            logging.root.warning(
                f"PIRLLoss was given {_FORGOTTEN} batches since its memory bank was last updated: "
                f"expected loss.update(rows, f_image) after each step of the optimiser; without it "
                f"the bank stays as it was initialised, and each step draws the same negatives"
            )
        terms = dict(zip(names, means.detach(), strict=True))
        queries = dict(zip(names, batch.queries.detach(), strict=True))
        if further:
            terms = {name: self.terms[name] + value for name, value in terms.items()}
            queries = {name: torch.cat([self.queries[name], q]) for name, q in queries.items()}
            self.positives = torch.cat([self.positives, batch.positives])
            self.valid = torch.cat([self.valid, valid])
        else:
            self.positives, self.valid = batch.positives, valid
        self.terms, self.queries = terms, queries


def term_names(num_outputs: int, used: Sequence[int]) -> list[str]:
    """Name the used outputs' terms: ``image`` the last, ``invariance`` a transformed version."""
    several = num_outputs > 2
    invariance = [f"invariance_{i}" if several else "invariance" for i in range(num_outputs - 1)]
    return [[*invariance, "image"][i] for i in used]
