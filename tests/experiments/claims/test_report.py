"""Tables and figures of rows made by hand."""

import pytest

from pirl_plugin.experiments.claims.figures import write_figures
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows, at_time
from pirl_plugin.experiments.claims.verdicts import verdicts
from tests.helpers.claims_rows import SETTING, row

UNKNOWN = {"seconds": None, "wall_seconds": None}
INVARIANCE = {
    "mean": 0.5,
    "std": 0.1,
    "different_mean": 1.0,
    "density": [0.0, 1.0, 0.0, 0.0],
}


@pytest.fixture
def rows():
    found = []
    for seed in range(3):
        found.append(row("random", seed, 20, epochs=0, seconds=0))
        for method, top1 in (("npid", 40), ("pirl_jigsaw", 42), ("jigsaw", 30)):
            found.append(row(method, seed, top1 + seed, invariance=INVARIANCE))
    for value in (0, 0.25, 0.75, 1):
        found.append(row("pirl_jigsaw", 0, 30, epochs=2, changed={"lambda": value}))
    return found


def test_figures__are_those_that_have_runs(rows, tmp_path):
    names = ["accuracy_epochs.svg", "accuracy_time.svg", "layers.svg", "invariance.svg"]
    assert write_figures(tmp_path, Rows(rows, SETTING)) == [*names, "sweep_lambda.svg"]
    for name in names:
        text = (tmp_path / name).read_text()
        assert "<svg" in text


def test_figures__are_the_same_bytes_for_the_same_runs(rows, tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        write_figures(folder, Rows(rows, SETTING))
    first, second = ((tmp_path / x / "accuracy_time.svg").read_bytes() for x in "ab")
    assert first == second


def test_figures__of_nothing_are_none(tmp_path):
    assert write_figures(tmp_path, Rows([], SETTING)) == []
    assert not list(tmp_path.iterdir())


def test_tables__give_means_and_spreads(rows, tmp_path):
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    text = (tmp_path / "tables.md").read_text()
    # 42, 43, 44: mean 43, standard deviation 1
    assert "| PIRL (jigsaw) | 3 | 40,000 | 40.0 ± 0.0 | 43.0 ± 1.0 | 21.5 ± 0.5 |" in text
    assert "| **held** | +2.00 ± 0.00 | 3 |" in text  # PIRL over NPID
    assert "not measured yet" in text
    assert "## Weight λ of the invariance term" in text
    assert "| 0.25 | 1 | 30.0 | 15.0 |" in text


def test_seconds__that_are_unknown_are_left_out(rows, tmp_path):
    """Nobody saw them: the command was killed, and its run was not."""
    pirl = next(found for found in rows if found["method"] == "pirl_jigsaw" and not found["seed"])
    for part in (pirl, *pirl["points"]):
        part.update(UNKNOWN)
    claims = verdicts(Rows(rows, SETTING))
    seeds = {claim["id"]: claim["seeds"] for claim in claims}
    assert (seeds["pirl_over_jigsaw"], seeds["pirl_over_jigsaw_equal_time"]) == ([0, 1, 2], [1, 2])
    write_report(tmp_path, SETTING, rows, claims)
    assert "| PIRL (jigsaw) | 3 | 40,000 | 40.0 ± 0.0 |" in (tmp_path / "tables.md").read_text()
    for found in rows:
        for part in (found, *found["points"]):
            part.update(UNKNOWN)
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    assert "| PIRL (jigsaw) | 3 | 40,000 |  |" in (tmp_path / "tables.md").read_text()


def test_seconds__of_two_points_may_be_equal():
    run = row("npid", 0, 40, seconds=40)
    run["points"][1]["seconds"] = run["points"][0]["seconds"] = 0.0
    assert [at_time(run, t, "linear_top1", 5) for t in (0, 15, 30, 50)] == [20, 25, 30, 40]
