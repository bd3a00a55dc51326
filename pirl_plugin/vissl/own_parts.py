"""The user's own estimators and transforms, ``module:name`` in a configuration."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import OWN
from pirl_plugin.system.failures import Refused

if TYPE_CHECKING:
    from omegaconf import DictConfig


def is_own_part(name: object) -> bool:
    """Return whether a value in a configuration names a part of the user's own."""
    return isinstance(name, str) and ":" in name


def import_own_part(name: str) -> Any:
    """Import a part. The name is from the command line or the user's YAML, never from a file.

    Raises:
        Refused: it cannot be imported.
    """
    try:
        return resolve_name(name)
    except (AttributeError, ImportError, ValueError) as error:
        raise Refused(
            f"{name} cannot be imported: {error}. Put the folder with this module on PYTHONPATH."
        ) from error


def register_own_transforms(config: DictConfig) -> None:
    """Replace the user's own transforms by one that VISSL knows, which imports them.

    Raises:
        Refused: a transform cannot be imported.
    """
    from omegaconf import open_dict

    for split in ("TRAIN", "TEST"):
        for entry in config.DATA[split].TRANSFORMS:
            if is_own_part(entry.name):
                import_own_part(entry.name)
                with open_dict(entry):
                    entry.part = entry.name
                    entry.name = OWN
