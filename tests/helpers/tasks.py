"""A stand-in for VISSL's task, with only the attributes of ``pirl_plugin.vissl.task.Task``."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from pirl_plugin.vissl.task import Task

METHODS = {
    name
    for name, value in vars(Task).items()
    if isinstance(value, (FunctionType, property))
    if not name.startswith("__") and name not in ("_proto_hook", "_no_init_or_replace_init")
}
ATTRIBUTES = METHODS | set(Task.__annotations__)


class FakeTask:
    """A task with only the attributes that a test provides.

    Reading or setting an attribute that ``Task`` lacks fails. ``more`` adds attributes that only
    the test or VISSL's code uses.
    """

    more: frozenset[str] = frozenset()

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ATTRIBUTES | self.more:
            raise AttributeError(f"{name} is not an attribute of pirl_plugin.vissl.task.Task")
        super().__setattr__(name, value)
