"""What :class:`~pirl_plugin.losses.pirl_loss.PIRLLoss` saves, and what it takes back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.memory import ShardedMemoryBank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pirl_plugin.losses.config import PIRLLossConfig
    from pirl_plugin.memory import MemoryBank

_VISSL_BANK, _VISSL_PARAMS = "nce_average.memory", "nce_average.params"


class LossCheckpoint(nn.Module):
    """The state of the loss: rows of a replicated bank, Z, the step, and the hyperparameters."""

    config: PIRLLossConfig
    bank: MemoryBank
    norm_constant: Tensor
    norm_constant_known: bool
    step: int

    def get_extra_state(self) -> dict[str, Any]:
        """What the checkpoint holds beside the tensors."""
        return {"step": self.step, "hyperparameters": self.config.hyperparameters()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream of negatives where the checkpoint left it.

        The configuration wins over the checkpoint's hyperparameters; a difference is logged.
        """
        self.step = int(state["step"])
        now, before = self.config.hyperparameters(), state["hyperparameters"]
        changed = [f"{k}: {before[k]} → {v}" for k, v in now.items() if before.get(k, v) != v]
        if changed:
            logging.warning(
                f"LOSS.pirl_loss differs from the checkpoint's, and the configuration wins: "
                f"{', '.join(changed)}"
            )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a checkpoint of the same data set, of this loss or of VISSL's PIRL and NPID.

        Raises:
            ValueError: the checkpoint's bank has another number of rows or another width.
        """
        state = self._from_vissl(state_dict) if _VISSL_BANK in state_dict else state_dict
        if "bank.rows" in state:
            self._check_shape(state["bank.rows"])
            if isinstance(self.bank, ShardedMemoryBank):  # takes its part of a replicated bank
                self.bank.fill(state["bank.rows"])
                state = {k: v for k, v in state.items() if not k.startswith("bank.")}
        elif self.bank.persistent:
            raise ValueError(
                "the checkpoint holds no memory bank: it was written with bank.placement sharded; "
                "set LOSS.pirl_loss.bank.placement to sharded to resume it"
            )
        result = super().load_state_dict(state, strict, assign)
        if self.config.norm_constant is not None:
            self.norm_constant.fill_(self.config.norm_constant)
        self.norm_constant_known = not bool(self.norm_constant.isnan())
        return result

    def _from_vissl(self, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """The state of VISSL's ``nce_loss_with_memory``: its rows and, of ``nce``, its Z."""
        constant = state[_VISSL_PARAMS][2].double() if _VISSL_PARAMS in state else -1
        ours = dict(self.state_dict())
        ours["norm_constant"] = constant if constant > 0 else self.norm_constant
        # VISSL averages the ranks' random banks, which leaves rows not yet visited short.
        ours["bank.rows"] = normalize(state[_VISSL_BANK])
        ours["bank.visited"] = state[_VISSL_BANK].new_ones(len(state[_VISSL_BANK])).bool()
        logging.info(f"Loaded the memory bank of VISSL's loss: {len(state[_VISSL_BANK])} rows")
        return ours

    def _check_shape(self, rows: Tensor) -> None:
        found, expected = tuple(rows.shape), (self.bank.num_rows, self.bank.rows.shape[1])
        if found != expected:
            raise ValueError(
                f"the checkpoint's memory bank is {found}, this run's is {expected} (images, "
                f"embedding_dim): it is of another data set or head; point config.DATA.TRAIN at "
                f"the same data, or start anew in another config.CHECKPOINT.DIR"
            )
