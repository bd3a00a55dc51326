"""What a user asks of ``starts.json``: differences of two rows, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from peers_report import lead_words, paired_difference
from starts_rows import LABELS, MEASURES, frozen_rows

CONTINUED = ("npid continued", "pirl_jigsaw continued")
# Differences of the page's table.
KEY_QUESTIONS = (
    "PIRL, 40 passes: best layer − last layer",
    "PIRL, 40 passes − untrained network, best layers",
    "PIRL, 40 passes − histograms",
    "PIRL: jigsaw − rotation, 40 passes",
    "PIRL − NPID, 40 passes",
    "PIRL, 40 passes − NPID, 94 passes: the same time",
    "PIRL − NPID, 160 passes",
    "PIRL, 160 passes − NPID, 376 passes: the same time",
    "published weights, 128 px, frozen − PIRL, 40 passes",
    "published weights, then NPID, 5 passes − frozen, 64 px: kNN",
    "published weights, then NPID, 5 passes − frozen, 64 px: linear",
    "published weights, then NPID, 5 passes − frozen, 64 px: linear, 10 %",
    "published weights, then NPID, 20 passes − frozen, 64 px: kNN",
    "published weights, then NPID, 20 passes − frozen, 64 px: linear",
    "published weights, then PIRL, 5 passes − frozen, 64 px: kNN",
    "published weights, then PIRL, 5 passes − frozen, 64 px: linear",
    "published weights, then PIRL, 20 passes − frozen, 64 px: kNN",
    "published weights, then PIRL, 20 passes − frozen, 64 px: linear",
    "10 % of the labels, fine-tuned: PIRL (jigsaw), 40 passes − random weights",
    "10 % of the labels, fine-tuned: PIRL (rotation), 40 passes − random weights",
    "10 % of the labels, fine-tuned: NPID, 40 passes − random weights",
    "10 % of the labels, fine-tuned: published weights, then NPID, 5 passes − published weights",
    "10 % of the labels, published weights, 64 px: fine-tuned − linear, best layer",
)


class Answers:
    """The questions whose rows were measured, and their answers.

    Args:
        content: of ``starts.json``.

    Attributes:
        answers: questions with :func:`peers_report.paired_difference`, in the order of asking.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self._frozen = frozen_rows(content)
        self._tuned = pd.DataFrame(content["fine_tuned"])
        self._size = content["setting"]["image_size"]
        self.answers: list[tuple[str, dict[str, Any]]] = []

    def ask(self, question: str, first: pd.Series, second: pd.Series) -> None:
        """Answer a question about two rows, if both were measured with a common seed."""
        if (first - second).dropna().size:
            self.answers.append((question, paired_difference(first, second)))

    def linear(
        self, start: str, passes: int, side: int | None = None, column: str = "linear best"
    ) -> pd.Series:
        """Return a measure of a row by seed; without a side, of images of the training's size."""
        rows = self._frozen
        is_row = (rows["start"] == start) & (rows["passes"] == passes)
        return rows[is_row & (rows["size"] == (side or self._size))].set_index("seed")[column]

    def fine_tuned(self, start: str, passes: int, fraction: float) -> pd.Series:
        """Return the accuracy of a fine-tuned network by seed."""
        rows = self._tuned
        if rows.empty:
            return pd.Series(dtype=float)
        is_row = (rows["start"] == start) & (rows["passes"] == passes)
        return rows[is_row & (rows["fraction"] == fraction)].set_index("seed")["top1"]

    @property
    def passes(self) -> list[int]:
        """The passes of PIRL's rows."""
        rows = self._frozen
        return sorted({*rows.loc[rows["start"] == "pirl_jigsaw", "passes"]})

    def ask_of_pirl(self) -> None:
        """Ask how PIRL compares with other features and methods."""
        large = self._content["setting"]["published_size"]
        for count in self.passes:
            pirl = self.linear("pirl_jigsaw", count)
            name = f"PIRL, {count} passes"
            last = self.linear("pirl_jigsaw", count, column="linear last")
            self.ask(f"{name}: best layer − last layer", pirl, last)
            self.ask(f"{name} − histograms", pirl, self.linear("histograms", 0))
            untrained = self.linear("random", 0)
            self.ask(f"{name} − untrained network, best layers", pirl, untrained)
            self.ask(f"PIRL − NPID, {count} passes", pirl, self.linear("npid", count))
            same_time = equal_time_passes(self._content, count)
            if same_time is not None:
                npid = self.linear("npid", same_time)
                self.ask(f"{name} − NPID, {same_time} passes: the same time", pirl, npid)
            rotation = self.linear("pirl_rotation", count)
            self.ask(f"PIRL: jigsaw − rotation, {count} passes", pirl, rotation)
            published = self.linear("published", 0, large)
            self.ask(f"published weights, {large} px, frozen − {name}", published, pirl)

    def ask_of_continued(self) -> None:
        """Ask what it gives to continue from published weights."""
        for start in CONTINUED:
            own = self._frozen[self._frozen["start"] == start]
            for count, side in sorted({*zip(own["passes"], own["size"], strict=True)}):
                for measure, title in MEASURES.items():
                    column = f"{measure} best"
                    self.ask(
                        f"{LABELS[start]}, {count} passes − frozen, {side} px: {title}",
                        self.linear(start, count, side, column),
                        self.linear("published", 0, side, column),
                    )

    def ask_of_fine_tuned(self, fraction: float) -> None:
        """Ask what fine-tuning on a fraction of the labels gives."""
        percent = f"{100 * fraction:g} % of the labels"
        column = f"linear_{fraction} best"
        random = self.fine_tuned("random", 0, fraction)
        for start in ("npid", "pirl_rotation", "pirl_jigsaw"):
            for count in self.passes:
                name = f"{LABELS[start]}, {count} passes"
                trained = self.fine_tuned(start, count, fraction)
                self.ask(f"{percent}, fine-tuned: {name} − random weights", trained, random)
                self.ask(
                    f"{percent}, {name}: fine-tuned − linear, best layer",
                    trained,
                    self.linear(start, count, column=column),
                )
        published = self.fine_tuned("published", 0, fraction)
        for start in CONTINUED:
            for count in sorted({*self._tuned.loc[self._tuned["start"] == start, "passes"]}):
                self.ask(
                    f"{percent}, fine-tuned: {LABELS[start]}, {count} passes − published weights",
                    self.fine_tuned(start, count, fraction),
                    published,
                )
        self.ask(
            f"{percent}, published weights, {self._size} px: fine-tuned − linear, best layer",
            published,
            self.linear("published", 0, column=column),
        )


def answers_of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return questions with :func:`peers_report.paired_difference`, of the rows that there are.

    Args:
        content: of ``starts.json``.
    """
    asked = Answers(content)
    asked.ask_of_pirl()
    asked.ask_of_continued()
    for fraction in sorted({row["fraction"] for row in content["fine_tuned"]}):
        asked.ask_of_fine_tuned(fraction)
    return dict(asked.answers)


def equal_time_passes(content: dict[str, Any], passes: int) -> int | None:
    """Return the passes of NPID's rows that take the time of so many of PIRL; None: none does."""
    costs = content["costs"]
    equal = passes * costs["pirl_jigsaw"] / costs["npid"]
    run = {row["passes"] for row in content["frozen"] if row["start"] == "npid"}
    nearest = min(run, key=lambda count: abs(count - equal), default=0)
    return nearest if abs(nearest - equal) < 0.1 * equal else None


def questions_table(contents: list[dict[str, Any]], rows: Sequence[str] = ()) -> str:
    """Return questions and their answers for each set, in points of linear top-1 unless said.

    Args:
        contents: of ``starts.json`` of each set.
        rows: the questions; none: all.
    """
    names = [content["setting"]["data"] for content in contents]
    answers = [answers_of(content) for content in contents]
    asked = [*dict.fromkeys(question for of_set in answers for question in of_set)]
    lines = [
        f"| difference, points: mean ± 95 % interval | {' | '.join(names)} |",
        "|---|" + "---|" * len(names),
    ]
    for question in [row for row in rows if row in asked] or asked:
        cells = [
            lead_words(of_set[question]).replace(" ", "\u00a0") if question in of_set else "–"
            for of_set in answers
        ]
        lines.append(f"| {' | '.join([question, *cells])} |")
    return "\n".join(lines)
