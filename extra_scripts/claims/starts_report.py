"""Write the tables and the figure for ``starts.py``.

    python extra_scripts/claims/starts_report.py OUT/starts.json ... --out DIR [--name NAME]

Each file is for one data set. Writes ``DIR/NAME.svg`` and the tables in ``DIR/NAME.md``, below the
text that is there. Needs no images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from intervals import Interval, difference, interval_of
from matplotlib.figure import Figure
from report_files import below_text, markdown_table, write_files
from starts_rows import (
    ALL_LABELS,
    FEW_LABELS,
    FROM_SCRATCH,
    HANDMADE,
    LABELS,
    PUBLISHED,
    VARIANTS,
    Accuracies,
    Row,
    base_method,
    seconds_of,
)

from pirl_plugin.system.arguments import Parser

SHORT_EPOCHS = 40  # PIRL's epochs in the short tables, at most
Question = tuple[str, Callable[[Accuracies, str], Interval | None]]
"""Title, and a function that returns the difference on a data set for a measure."""


def accuracy_table(sets: list[Accuracies], rows: list[Row], measures: dict[str, str]) -> str:
    """Return one line per row, with the best layer's accuracies on each set."""
    return _table(
        f"{' / '.join(measures.values())}, best layer",
        sets,
        [accuracy_of(row) for row in rows],
        measures,
        [_seconds(sets, row) for row in rows],
    )


def accuracy_of(row: Row) -> Question:
    """Return the question of a row's mean accuracy."""

    def answer(one: Accuracies, measure: str) -> Interval | None:
        accuracy = one.of(row, measure)
        return None if accuracy is None else interval_of(accuracy)

    return (row.title, answer)


def difference_table(
    sets: list[Accuracies], questions: list[Question], measures: dict[str, str]
) -> str:
    """Return one line per question that has an answer on some set."""
    title = f"difference in points, {' / '.join(measures.values())}"
    return _table(title, sets, questions, measures, None)


def _table(
    title: str,
    sets: list[Accuracies],
    questions: list[Question],
    measures: dict[str, str],
    seconds: list[str] | None,
) -> str:
    """Return a table with one column per set, and the measures side by side in each cell."""
    titles = [title, *(one.content["setting"]["data"] for one in sets)]
    if seconds:
        titles.append("CPU time, s")
    lines = []
    sign = "" if seconds else "+"
    for number, (question, answer) in enumerate(questions):
        cells = []
        for one in sets:
            found = [answer(one, f"{measure} best") for measure in measures]
            words = [
                "–" if interval is None else interval.text(sign) + (interval.arrow if sign else "")
                for interval in found
            ]
            cells.append(" / ".join(words) if any(found) else "–")
        if set(cells) != {"–"}:
            cells += [seconds[number]] if seconds else []
            lines.append([question, *cells])
    return markdown_table(titles, lines)


def _seconds(sets: list[Accuracies], row: Row) -> str:
    seconds = seconds_of([one.content for one in sets], row)
    return "–" if seconds is None else f"{seconds:,.0f}"


def between(first: Row, second: Row, title: str = "") -> Question:
    """Return the question of how far one row is ahead of another."""

    def answer(one: Accuracies, measure: str) -> Interval | None:
        accuracies = one.of(first, measure), one.of(second, measure)
        return None if None in accuracies else difference(*accuracies)  # type: ignore[arg-type]

    first_title = first.title
    if first.size == second.size:  # named once
        first_title = first_title.removesuffix(f", {first.size} px")
    return (title or f"{first_title} − {second.title}", answer)


def layer_gain(row: Row) -> Question:
    """Return the question of what the chosen layer gains over the last one."""

    def answer(one: Accuracies, measure: str) -> Interval | None:
        best = one.of(row, measure)
        last = one.of(row, measure.replace("best", "last"))
        return None if best is None or last is None else difference(best, last)

    return (f"{row.title.rpartition(',')[0]}: best layer − last layer", answer)


def questions_of(
    sets: list[Accuracies], rows: list[Row], is_asked: Callable[[int], bool]
) -> Iterator[Question]:
    """Yield questions that compare PIRL after the requested epochs."""
    setting = sets[0].content["setting"]
    size = setting["image_size"]
    lengths = [row.epochs for row in rows if row.start == "pirl_jigsaw" and not row.is_tuned]
    for epochs in filter(is_asked, lengths):
        pirl = Row("pirl_jigsaw", epochs, size)
        rotation = Row("pirl_rotation", epochs, size)
        equal = {equal_time_epochs(one, rows, epochs) for one in sets} - {None, epochs}
        longer = [Row("npid", count, size) for count in sorted(filter(None, equal))]
        for trained in (pirl, rotation, *longer):
            for start in (*HANDMADE, "random"):
                yield between(trained, Row(start, 0, size))
        yield between(pirl, rotation)
        yield between(pirl, Row("npid", epochs, size))
        for npid in longer:
            yield between(pirl, npid, f"PIRL, {epochs} epochs − NPID, {npid.epochs}: the same time")
        for start in PUBLISHED:
            yield between(Row(start, 0, setting["published_size"]), pirl)


def equal_time_epochs(one: Accuracies, rows: list[Row], epochs: int) -> int | None:
    """Return the epochs of NPID's row with equal time to PIRL's ``epochs``; None without one."""
    costs = one.content["costs"]
    if not costs:
        return None
    equal = epochs * costs["pirl_jigsaw"] / costs["npid"]
    run = [row.epochs for row in rows if row.start == "npid"]
    nearest = min(run, key=lambda count: abs(count - equal), default=0)
    return nearest if abs(nearest - equal) < 0.1 * equal else None


def tuned_questions(sets: list[Accuracies]) -> Iterator[Question]:
    """Yield questions about fine-tuning on few labels."""
    rows = sorted({row for one in sets for row in one.rows if row.is_tuned}, key=lambda r: r.order)
    for row in rows:
        is_published = "published" in row.start or "continued" in row.start
        start = Row("published" if is_published else "random", 0, row.size, is_tuned=True)
        if row != start:
            yield between(row, start)
        frozen = Row(row.start, row.epochs, row.size)
        yield between(row, frozen, f"{row.title} − linear classifier on the same")


def selection_table(content: dict[str, Any]) -> str:
    """Return kNN / linear for each way to continue, on the tenth of the photos used to choose."""
    titles: dict[str, Callable[[Any], str]] = {
        "rate": lambda value: f"{value:g}",
        "fixed_statistics": lambda value: "ImageNet's" if value else "of the views",
        "tail_only": lambda value: "last stages" if value else "all",
        "heads_first": lambda value: "yes" if value else "no",
    }
    by_setting: dict[tuple[str, ...], dict[str, str]] = {}
    for row in content["selection"]:
        accuracy = f"{row['knn_top1']:.1f} / {row['linear_top1']:.1f}"
        setting = row.get("continuation")
        if setting is None:
            by_setting["–", "–", "none: frozen", "–"] = {"npid": accuracy, "pirl_jigsaw": accuracy}
            continue
        cells = tuple(title(setting[key]) for key, title in titles.items())
        by_setting.setdefault(cells, {})[row["method"]] = accuracy
    lines = [
        [*words, *(accuracies.get(method, "–") for method in ("npid", "pirl_jigsaw"))]
        for words, accuracies in by_setting.items()
    ]
    header = ["rate", "batch norm's statistics", "trained layers", "heads first", "NPID", "PIRL"]
    return markdown_table(header, lines)


def figure(sets: list[Accuracies]) -> Figure:
    """Draw linear accuracy over processor time, with a panel per set and a line per method."""
    drawn = Figure(figsize=(3.4 * len(sets), 3.6), layout="constrained")
    panels = drawn.subplots(1, len(sets), squeeze=False)[0]
    starts = {row.start for one in sets for row in one.rows}
    labels = {start: label for start, label in LABELS.items() if start in starts}
    for axes, one in zip(panels, sets, strict=True):
        frozen = [row for row in one.rows if not row.is_tuned]
        for number, (start, label) in enumerate(labels.items()):
            points = sorted(
                (seconds_of([one.content], row), accuracy.top1.mean())
                for row in frozen
                if row.start == start and (accuracy := one.of(row, "linear best"))
            )
            if points:
                seconds, accuracies = zip(*points, strict=True)
                axes.plot(seconds, accuracies, "o-", color=f"C{number}", markersize=4, label=label)
        axes.set_xscale("log")
        axes.set_title(one.content["setting"]["data"], fontsize=10)
        axes.set_xlabel("Processor time (s)")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("Linear, best layer, top-1 (%)")
    drawn.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
    )
    return drawn


def gap_figure(sets: list[Accuracies], lengths: list[tuple[Row, Row]]) -> Figure:
    """Draw PIRL's lead over NPID after equally many images, with a panel per set.

    Args:
        sets: the data sets.
        lengths: rows of PIRL and NPID with equal epochs.
    """
    drawn = Figure(figsize=(3.6 * len(sets), 3.2), layout="constrained")
    panels = drawn.subplots(1, len(sets), squeeze=False)[0]
    for axes, one in zip(panels, sets, strict=True):
        for number, (measure, label) in enumerate(ALL_LABELS.items()):
            _, answers = zip(*(between(*rows) for rows in lengths), strict=True)
            leads = [answer(one, f"{measure} best") for answer in answers]
            points = [
                (pirl.epochs * 1.04**number, lead.mean, lead.half_width or 0)
                for (pirl, _), lead in zip(lengths, leads, strict=True)
                if lead is not None
            ]
            if points:
                axes.errorbar(*zip(*points, strict=True), fmt="o-", markersize=4, label=label)
        axes.axhline(0, color="0.5", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = [pirl.epochs for pirl, _ in lengths]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_title(one.content["setting"]["data"], fontsize=10)
        axes.set_xlabel("Epochs")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("PIRL − NPID, best layer (points)")
    panels[0].legend(frameon=False)
    return drawn


def short_rows(sets: list[Accuracies], rows: list[Row], epochs: int) -> list[Row]:
    """Return one row of each kind, at the largest size, after PIRL's epochs or in equal time."""
    equal = {equal_time_epochs(one, rows, epochs) for one in sets}
    largest: dict[tuple[str, int], Row] = {}
    for row in rows:
        is_equal_time = row.start == "npid" and row.epochs in equal
        if row.epochs in (0, epochs) or is_equal_time or row.start in VARIANTS:
            largest[row.start, row.epochs] = row
    return [row for row in largest.values() if "continued" not in row.start]


def main() -> None:
    """Write the tables and the figure."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="starts.json for each data set")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    parser.add_argument("--name", default="starts", help="name of the files (default: %(default)s)")
    options = parser.parse_args()
    sets = [Accuracies(json.loads(file.read_text("utf-8"))) for file in options.files]
    measured = sorted({row for one in sets for row in one.rows}, key=lambda row: row.order)
    rows = [row for row in measured if not row.of]
    states = [row for row in measured if row.of]
    frozen = [row for row in rows if not row.is_tuned]
    trained = [row for row in frozen if row.start in FROM_SCRATCH]
    gains = [layer_gain(row) for row in trained]
    lengths = [row.epochs for row in trained]
    short_lengths = [epochs for epochs in lengths if epochs <= SHORT_EPOCHS]
    main_epochs = max(short_lengths, default=min(lengths, default=0))
    questions = [*questions_of(sets, rows, lambda epochs: epochs == main_epochs)]
    questions += [
        between(row, Row("published", 0, row.size)) for row in frozen if "continued" in row.start
    ]
    questions += [
        between(row, Row(base_method(row.start), row.epochs, row.size))
        for row in frozen
        if row.start in VARIANTS
    ]
    ends = {replace(row, epochs=row.of, of=0) for row in states}
    during = sorted(
        (row for row in {*states, *ends} if row.start == "pirl_jigsaw"), key=lambda row: row.epochs
    )
    passed = [(row, replace(row, start="npid")) for row in during]
    others = [*questions_of(sets, rows, lambda epochs: epochs != main_epochs)]
    tables = {
        "Differences": difference_table(sets, questions, ALL_LABELS),
        "Differences with few labels": difference_table(sets, questions, FEW_LABELS),
        "Differences after other numbers of epochs": difference_table(sets, others, ALL_LABELS),
        "PIRL and NPID during training": difference_table(
            sets, [between(*pair) for pair in passed], ALL_LABELS
        ),
        "States during training": accuracy_table(sets, states, ALL_LABELS),
        "What a middle layer gains": difference_table(
            sets, gains, {"linear": "linear", **FEW_LABELS}
        ),
        "All rows": accuracy_table(sets, frozen, ALL_LABELS),
        "Few labels": accuracy_table(sets, rows, FEW_LABELS),
        "Fine-tuning on few labels": difference_table(sets, [*tuned_questions(sets)], FEW_LABELS),
        "How to continue from published weights": selection_table(sets[0].content),
    }
    short = short_rows(sets, frozen, main_epochs)
    blocks = [accuracy_table(sets, short, ALL_LABELS)] if short else []
    for title, table in tables.items():
        if table.count("\n") > 1:  # more than its header
            blocks += [f"## {title}", table]
    has_costs = all(one.content["costs"] for one in sets)
    figures = {options.name: figure(sets)} if has_costs else {}
    if passed:
        figures[f"{options.name}_gap"] = gap_figure(sets, passed)
    page = below_text(options.out / f"{options.name}.md", options.name, "\n\n".join(blocks))
    write_files(options.out, options.name, page, figures)


if __name__ == "__main__":
    main()
