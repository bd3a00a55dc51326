"""The committed results: tables, verdicts and README are those of the runs in ``claims.json``."""

import itertools
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
from pirl_plugin.experiments.claims.statistics import t_interval
from pirl_plugin.experiments.claims.verdicts import verdicts

RESULTS = Path("docs/results")
CLAIMS = json.loads((RESULTS / "claims.json").read_text())
COST = CLAIMS["cost"]
RUNS = Rows(timed(CLAIMS["runs"], COST), CLAIMS["setting"])
README = Path("README.md").read_text()
T_95_OF_3_SEEDS = 4.302653  # of two degrees of freedom, two-sided
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


def test_recipes_comparison__is_that_of_its_runs(tmp_path):
    """PIRL and NPID with the loss of quick_jigsaw: verdicts, tables, and the page's figures."""
    there = RESULTS / "quick_jigsaw"
    content = json.loads((there / "claims.json").read_text())
    runs = Rows(content["runs"], content["setting"])
    found = verdicts(runs)
    assert found == content["claims"]
    write_report(tmp_path, content["setting"], content["runs"], content["claims"])
    assert (tmp_path / "tables.md").read_text() == (there / "tables.md").read_text()
    page = (RESULTS / "README.md").read_text()
    for label, method in (("PIRL (jigsaw)", "pirl_jigsaw"), ("NPID", "npid")):
        rows = runs.of(method)
        assert len(rows) == 3
        keys = ("linear_top1", "linear_best_top1", "knn_top1")
        cells = " | ".join(f"{statistics.fmean(row[key] for row in rows):.1f}" for key in keys)
        seconds = statistics.fmean(row["seconds"] for row in rows)
        assert f"| {label} | {cells} | {seconds:.0f} |" in page
    claims = {claim["id"]: claim for claim in found}
    for start, name in (
        ("| PIRL over NPID (95 % interval) | ", "pirl_over_npid"),
        ("| the same after NPID's seconds | ", "pirl_over_npid_equal_time"),
    ):
        claim = claims[name]
        each = (claim, claim["by_best_layer"], claim["by_knn"])
        low, high = claim["interval"]
        (line,) = [line for line in page.splitlines() if line.startswith(start)]
        cells = [cell.strip() for cell in line.removeprefix(start).split(" | ")]
        assert cells[0] == f"{claim['difference']:+.1f} ({low:.1f} to {high:.1f})"
        for cell, measured in zip(cells, each, strict=False):
            half = T_95_OF_3_SEEDS * measured["standard_error"]
            middle = measured["difference"]
            assert cell == f"{middle:+.1f} ({middle - half:.1f} to {middle + half:.1f})"


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


RECIPES = (  # λ, τ, first rows of the bank; as in the table of the results' page
    ("λ = 0.5, τ = 0.1, random", 0.5, 0.1, "random"),
    ("λ = 0.75, τ = 0.2, random", 0.75, 0.2, "random"),
    ("λ = 0.75, τ = 0.2, embeddings", 0.75, 0.2, "embeddings"),
)
COMPARED = (("second over first", 1, 0), ("third over second", 2, 1), ("third over first", 2, 0))


def test_recipes__are_those_of_the_page():
    page = (RESULTS / "README.md").read_text()
    runs = json.loads((RESULTS / "recipes.json").read_text())
    measured = []
    for label, *wanted in RECIPES:
        keys = ("lambda_invariance", "temperature", "bank_init")
        chosen = [
            run
            for run in runs
            if "Imagenette" in run["data"] and [run[key] for key in keys] == wanted
        ]
        assert [run["seed"] for run in chosen] == [0, 1, 2]
        figures = [[run[metric] for run in chosen] for metric in ("linear_top1", "knn_top1")]
        cells = " | ".join(", ".join(map(str, column)) for column in figures)
        assert f"| {label} | {cells} |" in page
        measured.append(figures)
    for label, better, worse in COMPARED:
        cells = []
        for ours, theirs in zip(measured[better], measured[worse], strict=True):
            found = t_interval([a - b for a, b in zip(ours, theirs, strict=True)])
            cells.append(f"{found.mean:+.1f} ({found.low:.1f} to {found.high:.1f})")
        assert re.search(rf"\| {label}.* \| {re.escape(' | '.join(cells))} \|", page), cells


def test_readme__has_the_recipes_runs_on_imagenette():
    runs = json.loads((RESULTS / "recipes.json").read_text())
    chosen = [run for run in runs if run["epochs"] == 24 and run["bank_init"] == "embeddings"]
    (line,) = [line for line in README.splitlines() if "Imagenette at 128 px (24" in line]
    _, _, linear, _, knn = (cell.strip() for cell in line.strip("|").split("|"))
    assert linear == ", ".join(str(run["linear_top1"]) for run in chosen)
    assert knn == ", ".join(str(run["knn_top1"]) for run in chosen)


def test_longer_runs__are_those_of_the_page():
    page, there = (RESULTS / "README.md").read_text(), RESULTS / "quick_jigsaw"
    files = [there / name for name in ("claims.json", "claims_48_epochs.json")]
    files += [there / "claims_96_epochs.json", there / "claims_50_classes.json"]
    shown = 0
    for run in itertools.chain(*(json.loads(file.read_text())["runs"] for file in files)):
        if run["seed"] == 0 and run["method"] != "random":
            keys = ("epochs", "linear_top1", "linear_best_top1", "knn_top1")
            cells = " | ".join(str(run[key]) for key in keys)
            assert f"| {METHODS[run['method']].label} | {cells} | {run['seconds']:.0f} |" in page
            shown += 1
    assert shown == 7


def test_settings__are_those_of_the_page():
    page = (RESULTS / "README.md").read_text()
    runs = json.loads((RESULTS / "quick_jigsaw" / "settings.json").read_text())["runs"]
    assert len(runs) >= 6
    for run in runs:
        assert f"| {run['setting']} | {run['linear_top1']} | {run['knn_top1']} |" in page


def test_page__has_the_verdicts():
    said = re.findall(r"`(\w+)`: (held|not held|undecided)", (RESULTS / "README.md").read_text())
    found = {claim["id"]: claim["verdict"] for claim in CLAIMS["claims"]}
    assert len(said) >= 11
    assert all(found[name] == verdict for name, verdict in said), found
