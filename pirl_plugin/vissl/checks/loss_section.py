"""The ``LOSS.pirl_loss`` section of a run, with the defaults of what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.losses.config import PIRLLossConfig

if TYPE_CHECKING:
    from vissl.config import AttrDict


def loss_section(config: AttrDict) -> PIRLLossConfig | None:
    """The section as the loss will read it; None where the run has another loss.

    Args:
        config: the host's; its values have been checked.
    """
    if config.LOSS.name != "pirl_loss":
        return None
    return PIRLLossConfig.from_mapping({**config.LOSS.pirl_loss, "num_train_samples": -1})
