"""Tables of a comparison, in Markdown, and its figures."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.claim import EACH
from pirl_plugin.experiments.claims.cost import timed
from pirl_plugin.experiments.claims.figures import write_figures
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.paper import imagenet_top1
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.sweep.results import label
from pirl_plugin.experiments.sweep.values import SWEEPS
from pirl_plugin.utils.outputs import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pirl_plugin.experiments.claims.claims_file import (
        ClaimRow,
        Cost,
        Difference,
        Metric,
        Setting,
        Verdict,
    )

_SWEEP_METRICS: dict[Metric, str] = {
    "linear_top1": "linear",
    "linear_best_top1": "best layer",
    "knn_top1": "kNN",
}


def write_report(
    out: Path,
    setting: Setting,
    rows: Sequence[ClaimRow],
    claims: Sequence[Verdict],
    cost: Cost | None = None,
) -> None:
    """Write ``tables.md`` and the figures that there are runs for.

    Args:
        out: the folder.
        setting: of ``claims.json``.
        rows: its finished runs.
        claims: its verdicts.
        cost: its timing of the methods in turn.
    """
    found = Rows(timed(rows, cost), setting)
    tables = [_setting(setting, rows, cost), _methods(found), _claims(claims), _sweeps(found)]
    write_text(out / "tables.md", "\n\n".join(table for table in tables if table) + "\n")
    write_figures(out, found)


def _setting(setting: Setting, rows: Sequence[ClaimRow], cost: Cost | None) -> str:
    data, versions = setting["data"], map(" ".join, setting["versions"].items())
    lines = [
        "# Measured",
        "",
        "Written by `pirl-plugin claims` from `claims.json`; every figure here is in that file.",
        "",
        f"- {setting['about']}",
        f"- {data['name']}: {data['train_images']:,} training and {data['val_images']:,} test "
        f"images of {data['classes']} classes; chance is {100 / data['classes']:.1f} %",
        f"- {setting['images_seen']:,} images seen ({setting['epochs']} epochs); a sweep's models "
        f"{setting['sweep_epochs']} epochs",
        f"- `linear`: {setting['linear_top1']}",
        f"- `kNN`: {setting['knn_top1']}",
        f"- `seconds`: {_seconds(setting, cost)}",
        f"- hardware: {_hardware(rows)}",
        f"- versions: {', '.join(versions)}, of the last command",
        f"- `{setting['command']}`",
    ]
    return "\n".join(lines)


def _hardware(rows: Sequence[ClaimRow]) -> str:
    """Of how many runs; those of earlier versions do not say."""
    made: Counter[str] = Counter()
    for row in rows:
        if "made_with" in row:
            found = f"{row['made_with']['hardware']}, {row['made_with']['precision']}"
        else:
            found = f"{row.get('hardware', 'not recorded')}, precision not recorded"
        made[found] += 1
    return "; ".join(f"{text} ({count} runs)" for text, count in made.most_common())


def _seconds(setting: Setting, cost: Cost | None) -> str:
    if cost is None:
        return setting["seconds"]
    rounds = len(next(iter(cost["rounds"].values()), []))
    return (
        f"of pre-training, by the cost of an image: the median of {rounds} short runs of each "
        f"method in turn ({cost['measured']}, {cost['hardware']}, {cost['precision']})"
    )


def _methods(rows: Rows) -> str:
    """Each method at the end of its training: mean ± standard deviation over seeds."""
    lines = [
        "## Methods",
        "",
        "| method | seeds | images seen | seconds | linear | kNN | best layer | its linear "
        "| paper (ImageNet; PIRL: 800 epochs, with rotation 400) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method, about in METHODS.items():
        found = rows.of(method)
        if not found:
            continue
        layers = ", ".join(dict.fromkeys(row["best_layer"] for row in found))
        lines.append(
            f"| {about.label} | {len(found)} | {found[0]['images_seen']:,} "
            f"| {_pretraining_seconds(found)} "
            f"| {_spread(row['linear_top1'] for row in found)} "
            f"| {_spread(row['knn_top1'] for row in found)} | {layers} "
            f"| {_spread(row['linear_best_top1'] for row in found)} "
            f"| {imagenet_top1(method) or ''} |"
        )
    lines += [
        "",
        "Mean ± standard deviation over seeds; top-1 in percent. The paper's figures are of the "
        "best layer, here the one of conv1 to res5 with the best mean over seeds. Its NPID++ is "
        "λ = 0 with more negatives and epochs than the NPID before it; it does not state them, and "
        "NPID here takes PIRL's. NPID (longer) has more of both.",
    ]
    return "\n".join(lines)


def _claims(claims: Sequence[Verdict]) -> str:
    lines = [
        "## Claims",
        "",
        "Each difference is above 0 where the statement holds. The verdict is that of a 95 % "
        "t-interval over at least three paired seeds: `held` where it lies above 0, `not held` "
        "below, else `undecided`. Accuracy is that of pooled res5; beside it, the same of the best "
        "layer's linear classifier and of the kNN. The paper's tables measure each method by its "
        "best layer: what they say has a second verdict, of that, `…_best_layer`. Of a statement "
        f"about several rivals at once: {EACH}.",
        "",
        "| claim | paper | verdict | difference ± standard error | seeds | best layer | kNN |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in claims:
        cells = [
            f"`{claim['id']}`: {claim['statement']}{_note(claim)}",
            claim["source"],
            f"**{claim['verdict']}**" if claim["seeds"] else "not measured yet",
            _difference(claim, claim["unit"]),
            str(len(claim["seeds"])),
            _difference(claim.get("by_best_layer")),
            _difference(claim.get("by_knn")),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _note(claim: Verdict) -> str:
    rival = f"smallest lead over {claim['smallest_over']}" if "smallest_over" in claim else ""
    # How the verdict on several rivals is found is said above the table.
    note = claim.get("note", "").removeprefix(EACH)
    return "".join(f"; {part}" for part in (note, rival) if part)


def _difference(measured: Difference | None, unit: str = "top-1") -> str:
    if not measured or measured["difference"] is None:
        return ""
    digits = 2 if "top-1" in unit else 3
    error = measured["standard_error"]
    value = f"{measured['difference']:+.{digits}f}"
    return value if error is None else f"{value} ± {error:.{digits}f}"


def _sweeps(rows: Rows) -> str:
    tables = [_sweep(rows, name) for name in SWEEPS]
    return "\n\n".join(table for table in tables if table)


def _sweep(rows: Rows, name: str) -> str:
    """Mean ± standard deviation over the seeds that have all values; a sentence on the others."""
    methods = rows.swept_methods(name)
    whole = {method: rows.whole_sweeps(name, method) for method in methods}
    counts = {method: rows.num_swept(name, method) for method in methods}
    partial = [
        f"{METHODS[method].label}, seed {seed}, {len(runs)} of {counts[method]} values"
        for method in methods
        for seed, runs in rows.sweeps(name, method).items()
        if len(runs) < counts[method]
    ]
    blocks = [f"## {SWEEPS[name].axis}"]
    if any(whole.values()):
        blocks.append(_sweep_table(name, whole))
    if partial:
        blocks.append(f"Not finished, and not among the means: {'; '.join(partial)}.")
    return "\n\n".join(blocks) if len(blocks) > 1 else ""


def _sweep_table(name: str, whole: Mapping[str, Sequence[dict[float, ClaimRow]]]) -> str:
    columns = [
        f"{METHODS[method].label}: {title}" for method in whole for title in _SWEEP_METRICS.values()
    ]
    lines = [
        f"| {SWEEPS[name].symbol} | seeds | {' | '.join(columns)} |".replace("|T|", r"\|T\|"),
        "|---|---|" + "---|" * len(columns),
    ]
    for value in sorted({value for sweeps in whole.values() for runs in sweeps for value in runs}):
        models = {m: [runs[value] for runs in whole[m] if value in runs] for m in whole}
        counts = "/".join(str(len(several)) for several in models.values() if several)
        cells = [
            _spread(row[metric] for row in several)
            for several in models.values()
            for metric in _SWEEP_METRICS
        ]
        lines.append(f"| {label(value)} | {counts} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pretraining_seconds(rows: Sequence[ClaimRow]) -> str:
    """Seconds of a method; no spread where its seeds take theirs from one cost of an image."""
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    return _spread(seconds[:1] if len(set(seconds)) == 1 else seconds)


def _spread(values: Iterable[float]) -> str:
    numbers = list(values)
    if not numbers:
        return ""
    places = 1 if numbers[0] < 100 else 0
    mean = f"{statistics.fmean(numbers):,.{places}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {statistics.stdev(numbers):.{places}f}"
