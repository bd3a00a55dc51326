"""What finished runs say of each claim: a difference for each seed, its interval and a verdict.

A difference is above 0 where the claim holds. Student's 95 % interval of its mean over the seeds
decides: *held* above 0, *not held* below, else *undecided*; fewer than three seeds decide nothing.
A claim about k rivals is held where all intervals lie above 0 (this needs no correction), and not
held where one lies below 0 at the level 1 - 0.05 / k (Bonferroni).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from pirl_plugin.evaluation.published import LAYERS, published

COMPARISON = yaml.safe_load(Path(__file__).with_name("comparison.yaml").read_text())
METHODS, SWEEPS = COMPARISON["methods"], COMPARISON["sweeps"]
LEVEL = 0.95


def main_epochs(method: str, epochs: int) -> int:
    """Length of a method's run in a comparison of ``epochs`` epochs."""
    about = METHODS[method]
    return round(epochs * about.get("budget", 1)) if "config" in about else 0


class Runs:
    """The finished runs of a ``claims.json``, and the differences that its claims are about.

    A method's best layer is the one with the best mean over its seeds: the best of each run would
    gain from noise.

    Args:
        content: of the file.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.epochs = content["setting"]["epochs"]
        self._runs: dict[tuple[str, tuple[Any, ...], int], dict[int, dict[str, Any]]] = {}
        for row in copy.deepcopy(content["runs"]):
            key = row["method"], tuple(row["changed"].items()), row["epochs"]
            self._runs.setdefault(key, {})[row["seed"]] = row
        for seeds in self._runs.values():
            best = pd.DataFrame([row["linear_by_layer"] for row in seeds.values()])[[*LAYERS]]
            layer = best.mean().idxmax()
            for point in (p for row in seeds.values() for p in (row, *row["points"])):
                point |= {"best_layer": layer, "linear_best_top1": point["linear_by_layer"][layer]}
        self.seeds = sorted({seed for seeds in self._runs.values() for seed in seeds})

    def main(self, method: str) -> dict[int, dict[str, Any]]:
        """Seed → run of the main comparison."""
        found = self._runs.get((method, (), main_epochs(method, self.epochs)), {})
        return dict(sorted(found.items()))

    def table(self, metric: str) -> pd.DataFrame:
        """Seeds × methods of the main comparison."""
        columns = {m: {s: row[metric] for s, row in self.main(m).items()} for m in METHODS}
        return pd.DataFrame(columns, self.seeds, [*METHODS], dtype=float)

    def layers(self, method: str) -> pd.DataFrame:
        """Seeds × layers, linear top-1."""
        rows = {seed: row["linear_by_layer"] for seed, row in self.main(method).items()}
        return pd.DataFrame.from_dict(rows, "index", columns=[*LAYERS], dtype=float)

    def sweep(self, name: str, method: str, metric: str) -> pd.DataFrame:
        """Seeds × values, NaN where a run is missing."""
        values, default = (SWEEPS[name][key][method] for key in ("values", "default"))
        epochs = max(1, self.epochs // 2)
        columns = {}
        for value in values:
            changed = () if value == default else ((name, value),)
            found = self._runs.get((method, changed, epochs), {})
            columns[value] = {seed: row[metric] for seed, row in found.items()}
        return pd.DataFrame(columns, self.seeds, values, dtype=float)

    def over(self, metric: str, better: str, worse: str) -> pd.Series:
        """At equal images seen: the end of one run against another's."""
        return self.table(metric)[better] - self.table(metric)[worse]

    def at_equal_time(self, metric: str, better: str, worse: str) -> pd.Series:
        """When the shorter of two runs ends, between the points of the other's curve."""
        runs, found = [self.main(m) for m in ("random", better, worse)], {}
        for seed in set.intersection(*map(set, runs)):
            random, *rows = (run[seed] for run in runs)
            start = {"seconds": 0, metric: random[metric]}
            curves = [
                pd.DataFrame([start, *row["points"]]).astype({"seconds": float}) for row in rows
            ]
            end = min(curve["seconds"].iloc[-1] for curve in curves)
            ours, theirs = (np.interp(end, c["seconds"], c[metric]) for c in curves)
            known = not any(curve["seconds"].isna().any() for curve in curves)
            found[seed] = ours - theirs if known else np.nan
        return pd.Series(found, dtype=float)

    def layer(self, metric: str, method: str, layer: str, *others: str) -> pd.Series:
        """A layer against the best of others, of all where none are named."""
        table = self.layers(method)
        return table[layer] - table[[*others] or [x for x in LAYERS if x != layer]].max(axis=1)

    def distance(self, metric: str, field: str, classifier: str, pirl: str) -> pd.Series:
        """Distances of images to their transformed versions, the classifier's minus PIRL's.

        ``field`` is ``mean``, ``std``, or ``relative`` for the mean as a share of the distance of
        different images; ``relative_own`` takes BatchNorm's statistics of each kind of input.
        """

        def value(row: dict[str, Any]) -> float:
            found = row.get("invariance", {})
            found = found.get("own_statistics", {}) if field.endswith("own") else found
            share = found.get("mean", np.nan) / found.get("different_mean", np.nan)
            return share if "relative" in field else found.get(field, np.nan)

        columns = {m: {s: value(row) for s, row in self.main(m).items()} for m in METHODS}
        table = pd.DataFrame(columns, self.seeds, [*METHODS], dtype=float)
        return table[classifier] - table[pirl]

    def lambda_best(self, metric: str) -> pd.DataFrame:
        """λ = 0.5 against each other value."""
        table = self.sweep("lambda", "pirl_jigsaw", metric)
        return pd.DataFrame({f"λ = {v:g}": table[0.5] - table[v] for v in table if v != 0.5})

    def lambda_ends(self, metric: str) -> pd.Series:
        """λ = 0.5 against the mean of the ends."""
        table = self.sweep("lambda", "pirl_jigsaw", metric)
        return table[0.5] - (table[0] + table[1]) / 2

    def over_jigsaw(self, metric: str) -> pd.DataFrame:
        """PIRL against the classifier with as many permutations."""
        ours, theirs = (self.sweep("permutations", m, metric) for m in ("pirl_jigsaw", "jigsaw"))
        return pd.DataFrame({f"|T| = {v:,}": ours[v] - theirs[v] for v in theirs})

    def more_permutations(self, metric: str, fewer: int) -> pd.Series:
        """All 9! permutations against fewer."""
        table = self.sweep("permutations", "pirl_jigsaw", metric)
        return table.iloc[:, -1] - table[fewer]

    def per_doubling(self, metric: str) -> pd.Series:
        """Least-squares slope of top-1 over log2 N."""
        table = self.sweep("negatives", "pirl_jigsaw", metric).dropna()
        slopes = np.polyfit(np.log2([*table]), table.T, 1)[0] if len(table) else []
        return pd.Series(slopes, table.index, dtype=float)


def paper_layers(method: str) -> list[float]:
    """The paper's linear top-1 on ImageNet by layer, percent (its Table 7)."""
    row = published(7, METHODS[method]["paper"][1] if "paper" in METHODS[method] else "Random")
    return [row[f"ImageNet {layer}"] or 0.0 for layer in LAYERS]


def interval(differences: pd.Series, level: float = LEVEL) -> tuple[float, float]:
    """Student's t-interval of the mean; NaN below two differences.

    Example:
        >>> [round(float(end), 3) for end in interval(pd.Series([1.0, 2.0, 3.0]))]
        [-0.484, 4.484]
    """  # 2 ± 4.303 · 1 / √3
    if len(differences) < 2:
        return np.nan, np.nan
    mean, error = differences.mean(), differences.sem()
    half = stats.t.ppf((1 + level) / 2, len(differences) - 1) * error
    return mean - half, mean + half


def verdict(table: pd.DataFrame) -> str:
    """``held``, ``not held`` or ``undecided``, of seeds × rivals without NaN."""
    if len(table) < 3:
        return "undecided"
    if all(interval(table[rival])[0] > 0 for rival in table):
        return "held"
    level = 1 - (1 - LEVEL) / table.shape[1]
    below = any(interval(table[rival], level)[1] < 0 for rival in table)
    return "not held" if below else "undecided"


def verdicts(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The ``claims`` of a ``claims.json``, those without any run included."""
    runs, found = Runs(content), []
    for name, claim in COMPARISON["claims"].items():
        accuracy = claim["measure"][0] not in ("distance", "layer")
        about = {"unit": "points of top-1", **claim}
        if claim.get("rivals"):
            about["note"] = COMPARISON["notes"]["rivals"]
        if not claim.get("tables"):
            found.append(_entry(name, about, runs, "linear_top1", accuracy))
            continue
        statement, source = claim["statement"], about["source"]
        about |= {
            "statement": f"{statement}, on pooled res5",
            "source": f"{source}, by best layers",
        }
        found.append(_entry(name, about, runs, "linear_top1", True))
        about["statement"] = f"{statement}, each with its best layer, as the paper measures"
        about["source"] = source
        found.append(_entry(f"{name}_best_layer", about, runs, "linear_best_top1", False))
    return found


def _entry(
    name: str, about: dict[str, Any], runs: Runs, metric: str, others: bool
) -> dict[str, Any]:
    table = _measured(about, runs, metric)
    rival = table.mean().idxmin() if len(table) else table.columns[0]
    entry = {
        "id": name,
        "statement": about["statement"],
        "source": about["source"],
        **_difference(table),
        "interval": [_rounded(end) for end in interval(table[rival])],
        "level": LEVEL,
        "unit": about["unit"],
        "seeds": [int(seed) for seed in table.index],
    }
    if "note" in about:
        entry["note"] = about["note"]
    if about.get("rivals") and len(table):
        entry["smallest_over"] = rival
    if others:
        entry["by_best_layer"] = _difference(_measured(about, runs, "linear_best_top1"))
        entry["by_knn"] = _difference(_measured(about, runs, "knn_top1"))
    return entry


def _measured(about: dict[str, Any], runs: Runs, metric: str) -> pd.DataFrame:
    """Seeds × rivals, of the seeds that have all of them."""
    kind, *arguments = about["measure"]
    return pd.DataFrame(getattr(runs, kind)(metric, *arguments)).dropna().sort_index()


def _difference(table: pd.DataFrame) -> dict[str, Any]:
    """Of the rival with the smallest mean lead."""
    lead = table[table.mean().idxmin()] if len(table) else table.iloc[:, 0]
    mean, error = lead.mean(), lead.sem()
    found = {"difference": _rounded(mean), "standard_error": _rounded(error)}
    return {"verdict": verdict(table), **found}


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)
