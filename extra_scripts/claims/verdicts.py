"""Decide each claim from finished runs: a difference per seed, an interval and a verdict.

A positive difference supports the claim. Student's 95 % interval for the mean over seeds decides:
*held* above 0, *not held* below, *undecided* otherwise; fewer than three seeds decide nothing. A
claim about k rivals is held if all intervals lie above 0 (this needs no correction), and not held
if one lies below 0 at the level 1 - 0.05 / k (Bonferroni).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

COMPARISON = yaml.safe_load(Path(__file__).with_name("comparison.yaml").read_text())
METHODS = COMPARISON["methods"]
SWEEPS = COMPARISON["sweeps"]
LAYERS = ("conv1", "res2", "res3", "res4", "res5")  # ResNet layers, from first to last
LEVEL = 0.95
CHANGED = [f"changed.{name}" for name in SWEEPS]
DISTANCES = ("invariance", "invariance.own_statistics")
COLUMNS = [  # of rows; some or all values may be missing
    *("method", "seed", "epochs", "linear_top1", "knn_top1", *LAYERS, *CHANGED),
    *(f"{kind}.{key}" for kind in DISTANCES for key in ("mean", "std", "different_mean")),
]


def main_epochs(method: str, epochs: int) -> int:
    """Return a method's number of epochs in a comparison over ``epochs`` epochs."""
    settings = METHODS[method]
    return round(epochs * settings.get("budget", 1)) if "config" in settings else 0


def sweep_epochs(epochs: int) -> int:
    """Return the number of epochs for sweeps in a comparison over ``epochs`` epochs."""
    return max(1, epochs // 2)


class Runs:
    """The finished runs in a ``claims.json``, and the differences that the claims are about.

    A method's best layer is the one with the best mean over its seeds, because choosing it per run
    would gain from noise.

    Args:
        content: the file's content.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.epochs = content["setting"]["epochs"]
        rows = pd.json_normalize(content["runs"])
        rows = rows.rename(columns=lambda name: name.removeprefix("linear_by_layer."))
        rows = rows.reindex(columns=rows.columns.union(COLUMNS))
        for kind in DISTANCES:
            rows[f"{kind}.relative"] = rows[f"{kind}.mean"] / rows[f"{kind}.different_mean"]
        seeds = rows.groupby(["method", "epochs", *CHANGED], dropna=False)
        rows["best_layer"] = seeds[[*LAYERS]].transform("mean").idxmax(axis=1)
        rows["linear_best_top1"] = [row[row["best_layer"]] for _, row in rows.iterrows()]
        self._rows = rows

    def _select(self, method: str, epochs: int, unchanged: list[str]) -> pd.DataFrame:
        rows = self._rows[(self._rows["method"] == method) & (self._rows["epochs"] == epochs)]
        return rows[rows[unchanged].isna().all(axis=1)]

    def main(self, method: str) -> pd.DataFrame:
        """Return the runs in the main comparison, by seed."""
        runs = self._select(method, main_epochs(method, self.epochs), CHANGED)
        return runs.set_index("seed").sort_index()

    def sweep(self, name: str, method: str, metric: str) -> pd.DataFrame:
        """Return seeds × values, NaN where a run is missing."""
        column = f"changed.{name}"
        unchanged = [key for key in CHANGED if key != column]
        runs = self._select(method, sweep_epochs(self.epochs), unchanged)
        runs = runs.fillna({column: SWEEPS[name]["default"][method]})
        table = runs.pivot(index="seed", columns=column, values=metric)
        return table.reindex(columns=SWEEPS[name]["values"][method]).astype(float)

    def over(self, metric: str, more: str, less: str) -> pd.Series:
        """Compare one method with another, at the end of their runs."""
        return self.main(more)[metric] - self.main(less)[metric]

    def at_equal_time(self, metric: str, better: str, worse: str) -> pd.Series:
        """Compare two runs when the shorter one ends, by interpolating the other's curve."""
        random = self.main("random")
        runs = [self.main(better), self.main(worse)]
        leads = {}
        for seed in set(random.index).intersection(*(run.index for run in runs)):
            start = random[metric][seed]
            curves = [curve(run.loc[seed]) for run in runs]
            end = np.min([points["seconds"].iloc[-1] for points in curves])  # NaN if one is unknown
            first, second = (
                np.interp(end, [0, *points["seconds"]], [start, *points[metric]])
                for points in curves
            )
            leads[seed] = first - second
        return pd.Series(leads, dtype=float)

    def layer(self, metric: str, method: str, layer: str, *others: str) -> pd.Series:
        """Compare a layer with the best of the others, or of all."""
        runs = self.main(method)
        rivals = [*others] or [rival for rival in LAYERS if rival != layer]
        return runs[layer] - runs[rivals].max(axis=1)

    def value(self, metric: str, name: str, value: float, *others: float) -> pd.DataFrame:
        """Compare a value in PIRL's sweep with every other value."""
        table = self.sweep(name, "pirl_jigsaw", metric)
        symbol = SWEEPS[name]["symbol"]
        return pd.DataFrame({f"{symbol} = {v:,}": table[value] - table[v] for v in others})

    def lambda_ends(self, metric: str) -> pd.Series:
        """Compare λ = 0.5 with the mean of the ends."""
        table = self.sweep("lambda", "pirl_jigsaw", metric)
        return table[0.5] - (table[0] + table[1]) / 2

    def over_jigsaw(self, metric: str) -> pd.DataFrame:
        """Compare PIRL with the classifier at equal numbers of permutations."""
        pirl = self.sweep("permutations", "pirl_jigsaw", metric)
        jigsaw = self.sweep("permutations", "jigsaw", metric)
        leads = {f"|T| = {value:,}": pirl[value] - jigsaw[value] for value in jigsaw}
        return pd.DataFrame(leads)

    def per_doubling(self, metric: str) -> pd.Series:
        """Return the least-squares slope of top-1 over log2 N."""
        table = self.sweep("negatives", "pirl_jigsaw", metric).dropna()
        slopes = np.polyfit(np.log2([*table]), table.T, 1)[0] if len(table) else []
        return pd.Series(slopes, table.index, dtype=float)


def curve(run: pd.Series) -> pd.DataFrame:
    """Return a run's points by thousands of images seen, with the method's best layer."""
    points = pd.DataFrame(run["points"]).astype({"seconds": float})
    points["linear_best_top1"] = points["linear_by_layer"].str[run["best_layer"]]
    return points.set_index(points["images_seen"] / 1e3)


def interval(differences: pd.Series | pd.DataFrame, level: float = LEVEL) -> tuple[Any, Any]:
    """Return the ends of Student's t-interval for each column's mean; NaN below two differences.

    Example:
        >>> [round(float(end), 3) for end in interval(pd.Series([1.0, 2.0, 3.0]))]
        [-0.484, 4.484]
    """  # 2 ± 4.303 · 1 / √3
    half = stats.t.ppf((1 + level) / 2, len(differences) - 1) * differences.sem()
    return differences.mean() - half, differences.mean() + half


def verdict(table: pd.DataFrame) -> str:
    """Return ``held``, ``not held`` or ``undecided`` for seeds × rivals without NaN."""
    if len(table) < 3:
        return "undecided"
    if (interval(table)[0] > 0).all():
        return "held"
    below = interval(table, 1 - (1 - LEVEL) / table.shape[1])[1] < 0
    return "not held" if below.any() else "undecided"


def verdicts(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ``claims`` for a ``claims.json``, including those without any run."""
    runs = Runs(content)
    claims = []
    for name, claim in COMPARISON["claims"].items():
        table = _measured(claim, runs, claim.get("metric", "linear_top1"))
        entry = {
            "id": name,
            "statement": claim["statement"],
            "source": claim["source"],
            **_difference(table),
            "interval": [_rounded(end) for end in interval(_smallest(table))],
            "level": LEVEL,
            "unit": claim.get("unit", "points of top-1"),
            "seeds": table.index.tolist(),
        }
        if "note" in claim:
            entry["note"] = claim["note"]
        if len(table) and table.shape[1] > 1:
            entry["smallest_over"] = _smallest(table).name
        if "metric" not in claim:
            entry["by_best_layer"] = _difference(_measured(claim, runs, "linear_best_top1"))
            entry["by_knn"] = _difference(_measured(claim, runs, "knn_top1"))
        claims.append(entry)
    return claims


def _measured(claim: dict[str, Any], runs: Runs, metric: str) -> pd.DataFrame:
    """Return seeds × rivals, for seeds with all rivals."""
    kind, *arguments = claim["measure"]
    table = pd.DataFrame(getattr(runs, kind)(metric, *arguments))
    return table.astype(float).dropna().sort_index()


def _smallest(table: pd.DataFrame) -> pd.Series:
    """Return the smallest mean lead, over the strongest rival."""
    return table[table.mean().idxmin()] if len(table) else table.iloc[:, 0]


def _difference(table: pd.DataFrame) -> dict[str, Any]:
    lead = _smallest(table)
    return {
        "verdict": verdict(table),
        "difference": _rounded(lead.mean()),
        "standard_error": _rounded(lead.sem()),
    }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)
