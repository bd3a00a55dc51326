"""A module of the host, as the steps around its import see it."""

from __future__ import annotations

from typing import Any, Protocol


class HostModule(Protocol):
    """A module of VISSL whose names a step reads and replaces; any module is one."""

    def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object, /) -> None: ...
