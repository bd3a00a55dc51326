"""What an engine that streams can sum over the drawn rows; estimators ask for these sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pirl_plugin.losses.engines.softmax import Softmax
    from pirl_plugin.memory import Draw


class DrawnSums(Protocol):
    """Sums over the N drawn rows m_k of each of B images, for T queries.

    Args:
        queries: ``(T, B, D)``, embeddings over τ, so that products with rows are the scores s_k.
        table: ``(rows, D)`` of any floating type.
        draw: a :class:`~pirl_plugin.memory.Draw`, or ``(B, N)`` int64 rows of the table.

    Attributes:
        num_negatives: N.
    """

    num_negatives: int

    def __init__(self, queries: Tensor, table: Tensor, draw: Draw | Tensor) -> None: ...

    def parts(self, with_odds: bool) -> Iterator[tuple[slice, DrawnSums]]:
        """Yield the images that are best taken together, and their sums.

        Args:
            with_odds: whether :meth:`odds` is asked for, after :meth:`softmax`.
        """

    def sigmoid(self, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Sum softplus of s_k − shift, ``(T, B)``, and its sigmoid times m_k, ``(T, B, D)``."""

    def softmax(self) -> Softmax:
        """Compute statistics of the softmax over the drawn rows."""

    def odds(self, log_total: Tensor, left_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Sum −log(1 − h_k) and o_k, ``(T, B)``, and o_k·m_k ``(T, B, D)``, with o = h/(1 − h).

        After :meth:`softmax`, and for what :meth:`parts` yields ``with_odds``.

        h_k = exp(s_k − log_total), ``log_total`` ``(T, B)``; ``left_out`` ``(T, B)`` int64 says
        which of the N is not summed.
        """
