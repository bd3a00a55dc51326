"""The loss, adapted to the host's registry and training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from classy_vision.losses import ClassyLoss
from torch import Tensor

from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.system.failures import Refused


class VISSLPIRLLoss(PIRLLoss, ClassyLoss):
    """:class:`~pirl_plugin.method.loss.PIRLLoss` under the host's base class."""

    @classmethod
    def from_config(cls, loss_config: Mapping[str, Any]) -> VISSLPIRLLoss:
        """Build the loss from the host's ``LOSS.pirl_loss`` section.

        Raises:
            ValueError: the loss cannot use a key or a value.
        """
        settings = {key: value for key, value in loss_config.items() if key != "name"}
        try:
            return cls(**settings)
        except Refused as error:  # it names the argument
            raise Refused(f"config.LOSS.pirl_loss.{error}") from None

    def forward(self, output: Tensor | Sequence[Tensor], target: Tensor) -> Tensor:  # type: ignore[override]
        """Compute the loss from the heads' outputs and the images' rows in the data set."""
        return super().forward(*image_and_transformed(output), target)


def image_and_transformed(output: Tensor | Sequence[Tensor]) -> tuple[Tensor, list[Tensor] | None]:
    """Return f(v_I) and the list of g(v_It), from the host's ``[g(v_It), …, f(v_I)]`` or f(v_I)."""
    if not isinstance(output, (list, tuple)):
        return output, None  # type: ignore[return-value]
    return output[-1], list(output[:-1]) or None
