"""The tables of finished runs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.evaluation.tables.published import LAYERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.evaluation.tables.layout import Row, Table


def markdown(tables: Sequence[Table]) -> str:
    """The tables as text; beside each published column what was measured here, blank if nothing."""
    parts = []
    for table in tables:
        own = table["number"] is None
        columns = table["columns"] if own else [n for c in table["columns"] for n in (c, "here")]
        head = "" if own else f"Table {table['number']}. "
        lines = [
            f"### {head}{table['title']}",
            "",
            f"| | {' | '.join(columns)} |",
            "|---|" + "---|" * len(columns),
        ]
        for row in table["rows"]:
            cells = []
            for i, column in enumerate(table["columns"]):
                cells += [] if own else [_number(row["published"][i])]
                cells.append(_measured(row, i, column))
            lines.append(f"| {row['method'].replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def markdown_of_measured(tables: Sequence[Table]) -> str:
    """The tables in which something was measured, as text, and the numbers of the others."""
    measured = [t for t in tables if any(v is not None for r in t["rows"] for v in r["measured"])]
    others = ", ".join(str(t["number"]) for t in tables if t not in measured)
    note = f"\n\nNothing here is of the paper's tables {others}; --out DIR writes them too"
    return markdown(measured) + (note if others else "")


def _measured(row: Row, i: int, column: str) -> str:
    text = _number(row["measured"][i])
    best = sorted({source["layer"] for source in row["runs"][i] if source["layer"] is not None})
    if best and not column.endswith(LAYERS):
        text += f" {', '.join(best)}"
    if row["spread"][i] is not None:
        text += f" ± {row['spread'][i]:.1f} ({len(row['runs'][i])} runs)"
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
