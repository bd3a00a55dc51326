"""The host's base classes that our registered parts subclass.

Raises:
    ModuleNotFoundError: VISSL, which brings Classy Vision, is not installed.
"""

from __future__ import annotations

from pirl_plugin.settings import NOT_INSTALLED

try:
    from classy_vision.dataset.transforms.classy_transform import ClassyTransform
    from classy_vision.hooks.classy_hook import ClassyHook
    from classy_vision.losses import ClassyLoss
except ModuleNotFoundError as error:
    if error.name != "classy_vision":
        raise
    raise ModuleNotFoundError(NOT_INSTALLED, name="classy_vision") from None

__all__ = ["ClassyHook", "ClassyLoss", "ClassyTransform"]
