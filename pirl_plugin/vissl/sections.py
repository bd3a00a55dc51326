"""Sections of the configuration that are ours, read as dataclasses. Imports no torch, no host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    Settings = TypeVar("Settings")


def read_section(kind: type[Settings], config: Mapping[str, Any], key: str) -> Settings:
    """Read a section of the configuration as a dataclass, whose types and keys are checked.

    Args:
        kind: the dataclass; its defaults stand for what the section leaves out.
        config: the host's configuration, from its ``config`` section.
        key: dotted key of the section; a missing section has the defaults.

    Raises:
        ValueError: a key is unknown, or a value is of another type or refused by the dataclass.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    section: Any = config
    for name in key.split("."):
        section = section.get(name) if hasattr(section, "get") else None
    try:
        merged = OmegaConf.merge(OmegaConf.structured(kind), _plain(section or {}))
        settings: Settings = OmegaConf.to_object(merged)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        at = f"config.{key}.{error.full_key or error.key}"
        reason = str(error).splitlines()[0]
        raise ValueError(f"{at}: expected a known key, a value of its type; {reason}") from None
    return settings


def _plain(value: Any) -> Any:
    """The host's dictionaries as OmegaConf takes them."""
    if hasattr(value, "items"):
        return {name: _plain(below) for name, below in value.items()}
    return [_plain(below) for below in value] if isinstance(value, (list, tuple)) else value
