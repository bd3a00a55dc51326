"""The loss as the host's registry builds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.vissl.bases import ClassyLoss

if TYPE_CHECKING:
    from collections.abc import Mapping


class VISSLPIRLLoss(PIRLLoss, ClassyLoss):
    """:class:`~pirl_plugin.losses.pirl_loss.PIRLLoss` under the host's base class."""

    @classmethod
    def from_config(cls, loss_config: Mapping[str, Any]) -> VISSLPIRLLoss:
        """Build the loss from the host's ``LOSS.pirl_loss`` section.

        Raises:
            ValueError: a value, or a key, that the loss cannot use.
        """
        PIRLLossConfig.from_mapping(loss_config)  # names an unknown key
        return cls(**{key: value for key, value in loss_config.items() if key != "name"})
