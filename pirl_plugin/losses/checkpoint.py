"""What :class:`~pirl_plugin.losses.pirl_loss.PIRLLoss` saves, loads, and makes its bank from."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.losses.config import SECTION
from pirl_plugin.losses.make_bank import make_bank
from pirl_plugin.memory import ShardedMemoryBank

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from pirl_plugin.losses.config import PIRLLossConfig
    from pirl_plugin.memory import MemoryBank

_EXTRA = "_extra_state"
_VISSL_BANK, _VISSL_PARAMS = "nce_average.memory", "nce_average.params"


class ExtraState(TypedDict):
    """What a checkpoint holds beside the tensors."""

    step: int
    hyperparameters: dict[str, Any]  # key of the configuration → value


class LossCheckpoint(nn.Module):
    """The state of the loss: rows of a replicated bank, Z, the step, and the hyperparameters."""

    config: PIRLLossConfig
    bank: MemoryBank
    norm_constant: Tensor
    norm_constant_known: bool
    step: int
    seed: int | None

    def hyperparameters(self) -> dict[str, object]:
        """Every key of the configuration, with the seed that is in use."""
        return {**self.config.hyperparameters(), "bank.seed": self.seed or 0}

    def get_extra_state(self) -> ExtraState:
        """What the checkpoint holds beside the tensors."""
        return {"step": self.step, "hyperparameters": self.hyperparameters()}

    def set_extra_state(self, state: ExtraState) -> None:
        """Continue the stream of negatives where the checkpoint ends.

        The configuration wins over the checkpoint's hyperparameters, and what differs is logged,
        once. A ``bank.seed`` of null is the checkpoint's.
        """
        self.step = int(state["step"])
        before = state["hyperparameters"]
        if self.config.bank.seed is None:
            self.seed = before.get("bank.seed", self.seed)
        changed = [
            f"{key}: {before[key]} → {value}"
            for key, value in self.hyperparameters().items()
            if before.get(key, value) != value
        ]
        if self._is_z_outdated(before):
            changed.append("Z is estimated again from the next batch")
        if changed:
            logging.root.warning(
                f"{SECTION} differs from the checkpoint's, and the configuration wins: "
                f"{', '.join(changed)}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        constant = self.norm_constant
        super()._apply(fn, recurse)
        # ``half()`` and the like cast what they find: Z, as large as |D| · exp(1/τ), stays float64.
        self.norm_constant = constant.to(self.norm_constant.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Load a checkpoint of the same data set, of this loss or of VISSL's PIRL and NPID.

        It is what ``load_state_dict`` calls, of this module or of one that contains it.

        Raises:
            ValueError: it is the state of something else; or the checkpoint's bank has another
                number of rows or another width, or is sharded where this run's is replicated.
        """
        given = {key.removeprefix(prefix): v for key, v in state_dict.items()}
        if not given and prefix:  # a part of the module around this one
            super()._load_from_state_dict(state_dict, prefix, *arguments)
            return
        state = self._checked(given)
        state_dict.clear()
        state_dict.update({f"{prefix}{key}": value for key, value in state.items()})
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        before = state.get(_EXTRA, {}).get("hyperparameters", {})
        constant = self.config.norm_constant
        if constant is not None and before.get("norm_constant") != constant:
            self.norm_constant.fill_(constant)  # else the checkpoint's, which may have moved
        elif self._is_z_outdated(before):
            self.norm_constant.fill_(torch.nan)
        self.norm_constant_known = not bool(self.norm_constant.isnan())

    def _checked(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state as torch loads it into this module and its bank.

        Raises:
            ValueError: see :meth:`_load_from_state_dict`.
        """
        if _VISSL_BANK in state:
            state = self._from_vissl(state)
        if "bank.rows" in state:
            self._check_shape(state["bank.rows"])
            self.bank.loaded = True
            if isinstance(self.bank, ShardedMemoryBank):  # takes its part of a replicated bank
                self.bank.fill(state["bank.rows"], state["bank.visited"])
                state = {k: v for k, v in state.items() if not k.startswith("bank.")}
        elif _EXTRA not in state:
            raise ValueError(
                f"a state of {', '.join(list(state)[:3]) or 'nothing'}: expected that of a "
                f"PIRLLoss, or of VISSL's loss with a memory bank; give what state_dict() returned"
            )
        elif isinstance(self.bank, ShardedMemoryBank):
            self.bank.awaits_load = state[_EXTRA]["step"] > 0  # what it holds is of another state
        else:
            raise ValueError(
                f"{SECTION}.bank.placement = replicated: expected sharded, since the checkpoint "
                f"holds no rows of the memory bank; set it to sharded to resume"
            )
        return state

    def resize(self, num_train_samples: int) -> None:
        """Make a new bank, for a data set of ``num_train_samples`` images, on the same device."""
        self.config.num_train_samples = num_train_samples
        self.bank = make_bank(self.config, self.seed or 0).to(self.bank.rows.device)

    def new_bank(self, placement: str) -> MemoryBank:
        """A bank as this loss began with, on a CPU, ``replicated`` or ``sharded``."""
        return make_bank(self.config, self.seed or 0, placement)

    def resolve_seed(self, seed: int) -> None:
        """Take ``seed`` where neither the configuration nor a checkpoint has given one."""
        if self.seed is None:
            self.seed = seed
            if seed != 0 and not self.bank.loaded:
                self.resize(self.bank.num_rows)

    def _is_z_outdated(self, before: Mapping[str, object]) -> bool:
        """Whether an estimated Z of a checkpoint does not belong to this configuration.

        It is a mean of exp(s/τ), so it changes with τ; and a Z that was given is no estimate.
        """
        now = self.config
        other_temperature = before.get("temperature", now.temperature) != now.temperature
        was_given = before.get("norm_constant") is not None
        return now.norm_constant is None and (other_temperature or was_given)

    def _from_vissl(self, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """The state of VISSL's ``nce_loss_with_memory``: its rows and, of ``nce``, its τ and Z."""
        ours = dict(self.state_dict())
        before: dict[str, float] = {}
        if _VISSL_PARAMS in state:
            temperature, constant = (state[_VISSL_PARAMS][i].double() for i in (1, 2))
            # VISSL keeps τ in float32: 0.07 is read as 0.0700000003.
            before["temperature"] = float(f"{float(temperature):.6g}")
            ours["norm_constant"] = constant if constant > 0 else self.norm_constant
        ours[_EXTRA] = {"step": self.step, "hyperparameters": before}
        # VISSL averages the ranks' random banks, which leaves rows not yet visited short.
        ours["bank.rows"] = normalize(state[_VISSL_BANK])
        ours["bank.visited"] = state[_VISSL_BANK].new_ones(len(state[_VISSL_BANK])).bool()
        logging.root.info(f"Loaded the memory bank of VISSL's loss: {len(state[_VISSL_BANK])} rows")
        return ours

    def _check_shape(self, rows: Tensor) -> None:
        found, expected = tuple(rows.shape), (self.bank.num_rows, self.bank.rows.shape[1])
        if found != expected:
            raise ValueError(
                f"the checkpoint's memory bank is {found}, this run's is {expected} (images, "
                f"embedding_dim): it is of another data set or head; point config.DATA.TRAIN at "
                f"the same data, or start again in another config.CHECKPOINT.DIR"
            )
