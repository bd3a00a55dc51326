"""Run a test's tensors, losses, banks and heads on a device that the test does not name."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    import pytest

_MAKERS = {
    torch.arange, torch.empty, torch.eye, torch.full, torch.linspace, torch.ones, torch.rand,
    torch.randint, torch.randn, torch.randperm, torch.tensor, torch.zeros,
}  # fmt: skip


class TensorsOfTests(TorchFunctionMode):
    """Create tensors on a device if a file under ``tests/`` creates them without naming one.

    The package itself must name the device for each tensor, so its tensors stay where they are.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        by_a_test = "/tests/" in sys._getframe(1).f_code.co_filename
        if func not in _MAKERS or not by_a_test or kwargs.get("device") is not None:
            return func(*args, **kwargs)
        # A CPU generator gives the same numbers on all devices.
        requires_grad = kwargs.pop("requires_grad", False)
        return func(*args, **kwargs).to(self._device).requires_grad_(requires_grad)


def move_when_made(kind: type, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move each instance of a module class to a device at the end of its constructor."""
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.to(device)

    monkeypatch.setattr(kind, "__init__", __init__)
