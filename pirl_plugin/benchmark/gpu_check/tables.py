"""From ``gpu.json`` to Markdown: ``python -m pirl_plugin.benchmark.gpu_check.tables``.

It writes ``docs/results/gpu.md`` from all records in ``docs/results/gpu``, ``NAME.json`` each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.benchmark.gpu_check.parts import ROOT
from pirl_plugin.benchmark.gpu_check.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RECORDS, PAGE = ROOT / "docs" / "results" / "gpu", ROOT / "docs" / "results" / "gpu.md"
_INTRODUCTION = """\
# On a GPU

Written by `python -m pirl_plugin.benchmark.gpu_check.tables` from the records in
`docs/results/gpu`; [Checking a GPU](../guides/gpu.md) says how one is made.
"""
_NONE = """\
There is no record yet: the CUDA paths have not run on a GPU. The tests check of them what a CPU
can: the Triton kernels run in Triton's interpreter, and are compiled, not run, for compute
capability 8.0 and 9.0.
"""
# Benchmark -> key of its rows, and heading -> (key of a row, factor).
_COLUMNS: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "loss": (
        "rows",
        {
            "estimator": ("estimator", 1),
            "B": ("batch", 1),
            "N": ("negatives", 1),
            "bank": ("placement", 1),
            "ms, median": ("seconds_median", 1e3),
            "extra MB": ("extra_bytes", 1e-6),
            "% of copy bandwidth": ("bandwidth_fraction", 100),
            "times VISSL's speed": ("speedup_over_vissl", 1),
        },
    ),
    "step": (
        "rows",
        {
            "precision": ("precision", 1),
            "B": ("batch", 1),
            "images/s": ("images_per_s", 1),
            "ms": ("ms_median", 1),
            "GB": ("peak_gb", 1),
            "% loss + bank + hook": ("plugin_share", 100),
            "workers needed": ("workers_needed", 1),
        },
    ),
    "pipeline": (
        "rows",
        {
            "transform": ("transform", 1),
            "pipeline": ("pipeline", 1),
            "images/s/core": ("images_per_s_per_core", 1),
            "times VISSL's": ("ratio_to_vissl", 1),
        },
    ),
    "train": (
        "rows",
        {
            "training": ("training", 1),
            "images/s": ("images_per_s", 1),
            "times VISSL's": ("speedup_over_vissl", 1),
            "% input": ("input_share", 100),
            "% loss": ("loss_share", 100),
        },
    ),
}


def page(records: Sequence[Record]) -> str:
    """The whole page, of a section for each record."""
    sections = [section(record) for record in records] or [_NONE]
    return "\n".join([_INTRODUCTION, *sections])


def section(record: Record) -> str:
    """What one check found: the machine, how each part ended, and the figures."""
    machine = record.machine
    versions = ("torch", "triton", "cuda", "driver", "python", "numpy", "pirl_plugin")
    lines = [
        f"## {machine['gpu']}",
        "",
        "{gpus} × {gpu} ({gpu_memory_gb} GB, compute capability {compute_capability}), {cores} "
        "cores of {processor}.".format_map({key: _cell(value) for key, value in machine.items()}),
        "Versions: " + ", ".join(f"{name} {_cell(machine.get(name))}" for name in versions) + ".",
        "",
    ]
    lines += _table(
        ("part", "outcome", "s", "what"), [_part(*item) for item in record.parts.items()]
    )
    if record.left:
        lines += [f"Not run, for lack of time: {', '.join(record.left)}.", ""]
    for benchmark in _COLUMNS:
        lines += _figures(benchmark, record)
    return "\n".join(lines)


def _part(name: str, found: dict[str, Any]) -> tuple[Any, ...]:
    results = found.get("results") or {}
    notes = [found["reason"]] if found.get("reason") else []
    if "passed" in results:
        counts = ((kind, results[kind]) for kind in ("passed", "failed", "skipped"))
        numbers = ((kind, n if isinstance(n, int) else len(n)) for kind, n in counts)
        notes.append(", ".join(f"{number} {kind}" for kind, number in numbers if number))
        notes += sorted(set(results["skipped"].values()))
        notes += [f"{test}: {reason}" for test, reason in results["failed"].items()]
    return name, found["status"], found["seconds"], "; ".join(dict.fromkeys(notes))


def _figures(benchmark: str, record: Record) -> list[str]:
    """The table of one benchmark, of all its parts; nothing where none was run."""
    key, columns = _COLUMNS[benchmark]
    title = f"benchmark: {benchmark}"
    parts = [
        part["results"]
        for name, part in record.parts.items()
        if name.split(",")[0] == title and part.get("results")
    ]
    if not parts:
        return []
    rows = [
        [_scaled(row.get(k), by) for k, by in columns.values()] for p in parts for row in p[key]
    ]
    lines = [f"### `{benchmark}`", ""]
    copies = [part["copy_bytes_per_s"] for part in parts if part.get("copy_bytes_per_s")]
    if copies:
        rates = ", ".join(f"{copy / 1e9:,.0f}" for copy in copies)
        lines += [f"A copy in the same run reads and writes {rates} GB/s.", ""]
    inputs = [part["input_images_per_s"] for part in parts if part.get("input_images_per_s")]
    if inputs:
        rates = ", ".join(_cell(rate) for rate in inputs)
        data = ", ".join(sorted({part["data"] for part in parts}))
        lines += [f"Input pipeline on one core: {rates} images/s; images: {data}.", ""]
    return lines + _table(tuple(columns), rows)


def _scaled(value: Any, factor: float) -> Any:
    return value * factor if isinstance(value, (int, float)) and factor != 1 else value


def _table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return [*lines, ""]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def read_records(folder: Path) -> list[Record]:
    """All records ``NAME.json`` of a folder, by name."""
    return [Record(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]


if __name__ == "__main__":
    PAGE.write_text(page(read_records(RECORDS)))
    print(PAGE)
