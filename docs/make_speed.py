"""Write the measured tables of speed.md and gpu.md from the figures in docs/results.

python docs/make_speed.py

A table follows a comment with its name, such as ``<!-- table: pipeline -->``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
SPEED = DOCS / "results" / "speed"
GPU = DOCS / "results" / "gpu.json"
Row = dict[str, Any]
Cells = list[list[str]]
DATA = ("photos", "prepared", "small")


def speed(name: str) -> Any:
    """Return the content of a file of a benchmark's ``--json``."""
    return json.loads((SPEED / f"{name}.json").read_text())


def by_name(rows: list[Row], *keys: str) -> dict[Any, Row]:
    """Return the rows by the values of some keys."""
    return {tuple(row[key] for key in keys): row for row in rows}


def ms(seconds: float) -> str:
    """Return milliseconds for a table."""
    value = 1e3 * seconds
    return f"{value:.2f} ms" if value < 2 else f"{value:.1f} ms"


def megabytes(row: Row) -> str:
    """Return the memory of a call for a table."""
    return f"{row['extra_bytes'] / 1e6:,.0f}"


def number(value: float | None, form: str = ".1f") -> str:
    """Return a figure for a table; a dash if it was not measured."""
    return "–" if value is None else f"{value:{form}}"


def per_second(row: Row) -> str:
    """Return the speed of a pipeline for a table."""
    return f"{row['images_per_s_per_core']:,.0f}"


def pipeline() -> Cells:
    """Images per second on one core."""
    lines = [["data", "VISSL, jigsaw", "here, jigsaw", "ratio", "here, rotation", "here, both"]]
    for name in DATA:
        rows = by_name(speed(name)["rows"], "transform", "pipeline")
        ours = rows["jigsaw", "fused"]
        vissl = per_second(rows["jigsaw", "vissl"])
        rotation = per_second(rows["rotation", "fused"])
        both = per_second(rows["rotation_jigsaw", "fused"])
        ratio = number(ours["ratio_to_vissl"])
        line = [f"`{name.upper()}`", vissl, per_second(ours), ratio, rotation, both]
        lines.append(line)
    return lines


def pipeline_parts() -> Cells:
    """Where the time goes, and lightly's transform."""
    titles = ["decoding", "ratio, normalized", "ratio, VISSL from a list"]
    lines = [["data", *titles, "lightly", "here, its sizes", "ratio"]]
    for name in DATA:
        rows = by_name(speed(name)["rows"], "transform", "pipeline")
        ours = rows["jigsaw", "fused"]
        small = rows["jigsaw_64", "fused"]
        lightly = rows.get(("jigsaw_64", "lightly"))
        lines.append(
            [
                f"`{name.upper()}`",
                f"{ours['decode_share']:.0%}".replace("%", " %"),
                number(rows["jigsaw", "normalised"]["ratio_to_vissl"]),
                number(ours["ratio_to_filelist"]),
                per_second(lightly) if lightly else "–",
                per_second(small),
                number(small["ratio_to_lightly"]),
            ]
        )
    return lines


def loss() -> Cells:
    """One call of the loss on one core."""
    figures = speed("loss")
    vissl = by_name(figures["vissl"], "estimator")
    lines = [["loss", "VISSL, s", "here, s", "ratio", "VISSL, MB", "here, MB"]]
    for row in figures["rows"]:
        name = row["estimator"]
        peer = vissl[(name,)]
        against = ", against VISSL's `nce`" if name == "nce_softmax" else ""
        times = [number(r["seconds_median"], ".3g") for r in (peer, row)]
        ratio = number(row["speedup_over_vissl"], ".3g")
        lines.append([f"`{name}`{against}", *times, ratio, megabytes(peer), megabytes(row)])
    shared = by_name(figures["shared_draw"], "estimator")[("nce",)]
    time = number(shared["seconds_median"], ".2g")
    lines.append(["`nce`, `negatives: per_batch`", "–", time, "–", "–", megabytes(shared)])
    return lines


def startup() -> Cells:
    """Imports, the loss, a checkpoint."""
    lines = [["what", "VISSL, s", "here, s", "ratio"]]
    for row in speed("startup")["rows"]:
        peer = row["vissl_seconds_min"]
        ratio = number(row["speedup_over_vissl"], ".3g")
        lines.append([row["what"], number(peer, ".3g"), number(row["seconds_min"], ".3g"), ratio])
    return lines


def gpu_loss() -> Cells:
    """Loss and bank on a GPU."""
    figures = json.loads(GPU.read_text())
    now, before = figures["loss"], figures["loss_before_the_kernels"]
    earlier = by_name(before["rows"], "estimator", "batch")
    vissl = by_name(now["vissl"], "estimator", "batch")
    titles = ["here", "VISSL's", "ratio", "here, before the kernels"]
    lines = [["loss", "B", *titles, "memory here, MB", "VISSL's, MB"]]
    order = ("nce", "info_nce", "nce_softmax")
    for row in sorted(now["rows"], key=lambda row: order.index(row["estimator"])):
        name, batch = row["estimator"], row["batch"]
        peer = vissl[name, batch]
        against = ", against VISSL's `nce`" if name == "nce_softmax" else ""
        times = [ms(row["seconds_median"]), ms(peer["seconds_median"])]
        first = ms(earlier[name, batch]["seconds_median"])
        ratio = number(row["speedup_over_vissl"])
        memory = [megabytes(row), megabytes(peer)]
        lines.append([f"`{name}`{against}", str(batch), *times, ratio, first, *memory])
    shared_earlier = by_name(before["shared_draw"], "estimator", "batch")
    for row in now["shared_draw"]:
        if row["estimator"] == "nce":
            batch = row["batch"]
            time = ms(row["seconds_median"])
            first = ms(shared_earlier["nce", batch]["seconds_median"])
            name = "`nce`, `negatives=per_batch`"
            lines.append([name, str(batch), time, "–", "–", first, megabytes(row), "–"])
    return lines


def gpu_step() -> Cells:
    """A training step on a GPU, where launches do not limit it."""
    lines = [["precision", "B", "images/s", "step", "loss and bank", "peak memory"]]
    precisions = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
    for row in json.loads(GPU.read_text())["step"]["rows"]:
        share = row["loss_share"] + row["bank_share"]
        if share > 0.1:  # the processor launches more slowly than the GPU computes
            continue
        rate = f"{row['images_per_s']:,.0f}"
        step = f"{row['ms_median']:.0f} ms"
        memory = f"{row['peak_gb']:.1f} GB"
        precision = precisions[row["precision"]]
        lines.append([precision, str(row["batch"]), rate, step, f"{100 * share:.1f} %", memory])
    return lines


PAGES: dict[Path, list[Callable[[], Cells]]] = {
    DOCS / "speed.md": [pipeline, pipeline_parts, loss, startup],
    DOCS / "guides" / "gpu.md": [gpu_loss, gpu_step],
}


def page(path: Path) -> str:
    """Return a page with the tables of the figures."""
    text = path.read_text()
    for cells in PAGES[path]:
        header, *lines = (f"| {' | '.join(line)} |" for line in cells())
        rule = "|" + "---|" * header.count(" | ") + "---|"
        table = "\n".join([header, rule, *lines]) + "\n"
        marker = f"<!-- table: {cells.__name__} -->\n\n"
        if marker not in text:
            raise ValueError(f"{path.name} has no line {marker.strip()}")
        start = text.index(marker) + len(marker)
        rest = re.sub(r"\A(\|.*\n)*", "", text[start:])
        text = text[:start] + table + rest
    return text


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path))
