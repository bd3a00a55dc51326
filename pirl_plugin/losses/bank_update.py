"""From a step's embeddings on all ranks to the memory bank (Sec. 2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from pirl_plugin.distributed import gather_objects, sum_over_ranks
from pirl_plugin.memory.checks import check_embeddings, check_rows, not_finite, row_vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from pirl_plugin.memory import MemoryBank


class BankUpdate:
    """Exchange embeddings between the ranks while the caller goes on, then move the bank.

    Made by :meth:`PIRLLoss.start_update`. Every method is a collective.

    Args:
        bank: what is moved.
        step: training steps done, for messages.
        rows: ``(B,)`` int64, this rank's rows of the data set; negative entries are left out.
        embeddings: ``(B, D)`` f(v_I), this rank's, of any floating type.
        done: if given, called with what :meth:`apply` returns, once the bank has moved.
        momentum: weight of the old rows; None: the bank's.

    Raises:
        ValueError: rows or embeddings of another type, embeddings of another number or width; on a
            CPU, with a replicated bank, the ranks have different B.
    """

    def __init__(
        self,
        bank: MemoryBank,
        step: int,
        rows: Tensor,
        embeddings: Tensor,
        done: Callable[[Tensor], None] | None = None,
        momentum: float | None = None,
    ) -> None:
        self._bank, self._step, self._done, self._momentum = bank, step, done, momentum
        rows = row_vector("rows", rows)
        check_embeddings(embeddings, len(rows), bank.rows.shape[1])
        self._mine = rows, embeddings = rows, embeddings.detach().float()
        # A row outside the bank, which is not checked on a GPU, moves none.
        self._finish = bank.start_exchange(rows.masked_fill(rows >= bank.num_rows, -1), embeddings)
        self._exchanged: tuple[Tensor, Tensor] | None = None

    def exchanged(self) -> tuple[Tensor, Tensor]:
        """Indices ``(n,)`` and embeddings ``(n, D)`` that move the rows held on this rank."""
        if self._exchanged is None:
            self._exchanged = self._finish()
        return self._exchanged

    def check(self) -> None:
        """Raise what is wrong with them, on all ranks alike, so that none waits for another.

        Raises:
            FloatingPointError: an embedding is not finite; names ranks, step and rows.
            ValueError: a row is outside the bank; names it.
        """
        rows, embeddings = self._mine
        bad, outside = not_finite(rows, embeddings), rows >= self._bank.num_rows
        if not sum_over_ranks((bad | outside).sum()):
            return
        found = gather_objects((rows[outside].tolist(), rows[bad][:8].tolist()))
        for beyond, _ in found:
            check_rows(rows.new_tensor(beyond), self._bank.num_rows)
        ranks = [str(rank) for rank, (_, failed) in enumerate(found) if failed]
        raise FloatingPointError(
            f"embeddings f(v_I) are not finite on rank {', '.join(ranks)}, step {self._step}, rows "
            f"{[row for _, failed in found for row in failed][:8]}: the bank was left as it was; "
            f"lower the learning rate, or look at these images"
        )

    def apply(self) -> Tensor:
        """Move the bank.

        A CPU checks first; a GPU, which would have to be waited for, does not.

        Returns:
            ``(2,)`` float32, see :meth:`pirl_plugin.memory.MemoryBank.move`.

        Raises:
            FloatingPointError, ValueError: as :meth:`check`.
        """
        index, embeddings = self.exchanged()
        if embeddings.device.type == "cpu":
            self.check()
        moved = self._bank.move(index, embeddings, self._momentum)
        if self._done is not None:
            self._done(moved)
        return moved
