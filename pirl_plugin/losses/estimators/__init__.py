"""The estimators of Eq. 4, one file each, and the table that ``LOSS.pirl_loss.estimator`` names.

Nothing here imports torch before :func:`get_estimator` is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pirl_plugin.losses.estimators.base import Estimator

# Name in the configuration -> ``module:class``. A new estimator is its file and a line here.
ESTIMATORS: dict[str, str] = {
    "nce": "pirl_plugin.losses.estimators.nce:NCE",
    "nce_softmax": "pirl_plugin.losses.estimators.nce_softmax:NCESoftmax",
    "info_nce": "pirl_plugin.losses.estimators.info_nce:InfoNCE",
}


def get_estimator(name: str) -> Estimator:
    """Look an estimator up by its name.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in ESTIMATORS:
        raise ValueError(
            f"LOSS.pirl_loss.estimator = {name!r}: expected one of {', '.join(ESTIMATORS)}; "
            f"set it to one of these"
        )
    module, _, attribute = ESTIMATORS[name].partition(":")
    estimator: Estimator = getattr(importlib.import_module(module), attribute)()
    return estimator
