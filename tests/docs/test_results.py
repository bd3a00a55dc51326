"""The committed results: tables, verdicts and README are those of the runs in ``claims.json``."""

import json
import re
import statistics
from pathlib import Path

import pytest

from pirl_plugin.experiments.claims.cost import timed
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.paper import imagenet_top1
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.claims.verdicts import verdicts

RESULTS = Path("docs/results")
CLAIMS = json.loads((RESULTS / "claims.json").read_text())
COST = CLAIMS["cost"]
RUNS = Rows(timed(CLAIMS["runs"], COST), CLAIMS["setting"])
README = Path("README.md").read_text()
_ROW = re.compile(
    r"^\| (?P<label>[^|]+?)(?: \((?P<seeds>\d) seeds?\))? \| (?P<linear>[\d.]+) "
    r"\| (?P<best>[\d.]+) \| (?P<knn>[\d.]+) "
    r"\| ?(?P<paper>[\d.]*) ?\|$",
    re.MULTILINE,
)


def test_verdicts__follow_from_the_runs():
    assert verdicts(RUNS) == CLAIMS["claims"]


def test_tables__are_written_from_the_runs(tmp_path):
    write_report(tmp_path, CLAIMS["setting"], CLAIMS["runs"], CLAIMS["claims"], COST)
    assert (tmp_path / "tables.md").read_text() == (RESULTS / "tables.md").read_text()
    assert {file.name for file in tmp_path.iterdir()} == {
        file.name for file in RESULTS.iterdir() if file.name == "tables.md" or file.suffix == ".svg"
    }


def test_runs__are_whole():
    for row in CLAIMS["runs"]:
        assert row["points"][-1]["linear_top1"] == row["linear_top1"]
        assert row["images_seen"] == row["epochs"] * CLAIMS["setting"]["data"]["train_images"]


@pytest.mark.parametrize("row", list(_ROW.finditer(README)), ids=lambda row: row["label"])
def test_readme__has_the_runs_means(row):
    (method,) = [name for name, about in METHODS.items() if about.label == row["label"]]
    runs = RUNS.of(method)
    assert int(row["seeds"] or 3) == len(runs)
    for column, metric in (
        ("linear", "linear_top1"),
        ("best", "linear_best_top1"),
        ("knn", "knn_top1"),
    ):
        assert row[column] == f"{statistics.fmean(run[metric] for run in runs):.1f}"
    assert row["paper"] == str(imagenet_top1(method) or "")


def test_readme__names_every_method_of_three_seeds():
    named = {row["label"] for row in _ROW.finditer(README)}
    assert {METHODS[name].label for name in METHODS if len(RUNS.of(name)) >= 3} <= named
