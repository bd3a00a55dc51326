"""The heads as the host's registry builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin.models.head import PIRLHead

if TYPE_CHECKING:
    from vissl.config import AttrDict


class VISSLPIRLHead(PIRLHead):
    """:class:`~pirl_plugin.models.head.PIRLHead` with the host's constructor.

    Args:
        model_config: the host's ``MODEL`` section; not used.
        **options: of :class:`~pirl_plugin.models.head.PIRLHead`.
    """

    def __init__(self, model_config: AttrDict, **options: Any) -> None:
        super().__init__(**options)
