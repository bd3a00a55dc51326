"""What an estimator of the contrastive loss is: its equation on scores, and its streamed form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.sums import DrawnSums


class NormConstant(NamedTuple):
    """The partition constant of Wu et al. 2018, and the size of the data set.

    Attributes:
        value: Z, a scalar tensor.
        num_rows: |D|.
    """

    value: Tensor
    num_rows: int


class Estimator(ABC):
    """One estimator of Eq. 4, as the engines use it. A subclass of this alone runs in ``plain``.

    Attributes:
        name: as in ``LOSS.pirl_loss.estimator``.
        uses_norm_constant: whether it needs Z; the loss then estimates and keeps it.
    """

    name: ClassVar[str]
    uses_norm_constant: ClassVar[bool] = False

    @abstractmethod
    def from_scores(self, positive: Tensor, negatives: Tensor, constant: NormConstant) -> Tensor:
        """Compute the equation on scores; autograd computes the gradient.

        Args:
            positive: ``(B,)`` scores s/τ of each image against its own row of the bank.
            negatives: ``(B, N)`` scores s/τ against the drawn rows.
            constant: Z and |D|.

        Returns:
            ``(B,)``, float32 or wider.
        """


class StreamedEstimator(Estimator):
    """An estimator that the engines ``blocked`` and ``triton`` run too, without ``(B, N)`` scores.

    ``tests/helpers/estimator_tester.py`` compares its two forms, in value and gradient.

    Attributes:
        uses_odds: whether :meth:`from_sums` asks for ``sums.odds``, after ``sums.softmax``.
    """

    uses_odds: ClassVar[bool] = False

    @abstractmethod
    def from_sums(
        self, sums: DrawnSums, positive: Tensor, positive_rows: Tensor, constant: NormConstant
    ) -> tuple[Tensor, Tensor]:
        """Compute value and gradient from sums over the drawn rows.

        Args:
            sums: what an engine can sum over the N drawn rows of each image, for T queries q / τ.
            positive: ``(T, B)`` scores s/τ against each image's own row.
            positive_rows: ``(B, D)``, these rows.
            constant: Z and |D|.

        Returns:
            The value, ``(T, B)``, and its gradient with respect to q / τ, ``(T, B, D)``.
        """
