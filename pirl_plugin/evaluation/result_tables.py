"""The tables that ``pirl-plugin results`` writes to ``results.json``."""

from __future__ import annotations

from typing import TypedDict


class Source(TypedDict):
    """A run that measured a figure: its folder, and the layer that was best where it says so."""

    run: str
    layer: str | None


class Row(TypedDict):
    """A row of a table; lists have an entry for each column."""

    method: str
    published: list[float | None]
    measured: list[float | None]
    spread: list[float | None]
    runs: list[list[Source]]
    differs: dict[str, list[str]]


class Table(TypedDict):
    """A table; ``number`` is None of one that is not the paper's."""

    number: int | None
    title: str
    columns: list[str]
    rows: list[Row]
