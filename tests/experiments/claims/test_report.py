"""Tables and figures of rows made by hand."""

import pytest

from pirl_plugin.experiments.claims.figures import _curves, write_figures
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows, at_time
from pirl_plugin.experiments.claims.sweep_figure import sweep_figure
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
    for value in (0, 0.25, 0.5, 0.75, 1):
        changed = {} if value == 0.5 else {"lambda": value}
        found.append(row("pirl_jigsaw", 0, 30, epochs=2, changed=changed))
    return found


@pytest.fixture
def partial(rows):
    """A second seed of the sweep has two of its values, far from the first's."""
    more = [row("pirl_jigsaw", 1, 90, epochs=2, changed={"lambda": value}) for value in (0, 0.25)]
    return rows + more


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


def test_curves__name_the_supervised_network_and_leave_it_out(rows):
    """It is so far above the others that they lay on one another."""
    supervised = [row("supervised", seed, 90 + seed) for seed in range(3)]
    drawing = _curves(Rows(rows + supervised, SETTING), "images_seen", "Images", 1.0)
    assert max(axes.get_ylim()[1] for axes in drawing.axes) < 60
    (legend,) = drawing.legends
    assert "Supervised, not drawn:\nlinear 91.0, kNN 45.5" in [
        text.get_text() for text in legend.get_texts()
    ]


def test_sweep_figure__has_its_legend_beside_the_panels(rows):
    drawing = sweep_figure(Rows(rows, SETTING), "lambda")
    assert [axes.get_legend() for axes in drawing.axes] == [None, None]
    (legend,) = drawing.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == ["PIRL (jigsaw)", "PIRL (jigsaw), best layer"]


def test_figures__of_nothing_are_none(tmp_path):
    assert write_figures(tmp_path, Rows([], SETTING)) == []
    assert not list(tmp_path.iterdir())


def test_tables__give_means_and_spreads(rows, tmp_path):
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    text = (tmp_path / "tables.md").read_text()
    # 42, 43, 44: mean 43, standard deviation 1
    assert "| PIRL (jigsaw) | 3 | 40,000 | 40.0 | 43.0 ± 1.0 | 21.5 ± 0.5 |" in text
    assert "| **held** | +2.00 ± 0.00 | 3 |" in text  # PIRL over NPID
    assert "not measured yet" in text
    assert "## Weight λ of the invariance term" in text
    assert "| 0.25 | 1 | 30.0 | 29.0 | 15.0 |" in text
    assert "; measured in different spaces" in text


def test_tables__name_the_papers_figure_of_npid(rows, tmp_path):
    rows.append(row("npidpp", 0, 44, epochs=10))
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    lines = (tmp_path / "tables.md").read_text().splitlines()
    (npid,) = (line for line in lines if line.startswith("| NPID |"))
    (more,) = (line for line in lines if line.startswith("| NPID (longer) |"))
    assert npid.endswith("| 59.0 |")  # the paper's NPID++: λ = 0 with PIRL's epochs and N
    assert more.endswith("|  |")


def test_tables__of_a_sweep_are_means_of_the_seeds_that_have_all_values(partial, tmp_path):
    write_report(tmp_path, SETTING, partial, verdicts(Rows(partial, SETTING)))
    text = (tmp_path / "tables.md").read_text()
    assert "| 0 | 1 | 30.0 | 29.0 | 15.0 |" in text
    assert "not among the means: PIRL (jigsaw), seed 1, 2 of 5 values." in text


def test_tables__of_a_sweep_without_a_whole_seed_are_a_sentence(partial, tmp_path):
    rows = [one for one in partial if one["seed"]]
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    _, _, sweep = (tmp_path / "tables.md").read_text().partition("## Weight λ")
    assert "seed 1, 2 of 5 values" in sweep
    assert "|" not in sweep


def test_sweep_figure__has_its_line_over_whole_seeds_and_a_dot_a_model(partial):
    linear, knn = sweep_figure(Rows(partial, SETTING), "lambda").axes
    for axes, top1 in ((linear, 30), (knn, 15)):
        lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
        assert lines["PIRL (jigsaw)"] == [top1] * 5
        dots = [y for line in axes.lines if line.get_marker() == "." for y in line.get_ydata()]
        assert sorted(dots) == sorted([top1] * 5 + [3 * top1] * 2)
    alone = [one for one in partial if one["seed"]]
    for axes in sweep_figure(Rows(alone, SETTING), "lambda").axes:
        assert {line.get_linestyle() for line in axes.lines} <= {"None", ":"}  # dots, the paper's


def test_sweep_figure__has_the_papers_figure_and_measure_on_the_linear_panel_alone(rows):
    rows += [
        row("pirl_jigsaw", 0, 30, epochs=2, changed={"permutations": value}) for value in (1, 10)
    ]
    for name, words in (
        ("lambda", "ImageNet, best layer"),
        ("permutations", "mAP on VOC07, |T| not stated"),
    ):
        linear, knn = sweep_figure(Rows(rows, SETTING), name).axes
        assert words in linear.get_title()
        assert knn.get_title() == ""
    labels = sweep_figure(Rows(rows, SETTING), "lambda").axes[0].get_legend_handles_labels()[1]
    assert labels == ["PIRL (jigsaw)", "PIRL (jigsaw), best layer"]


def test_seconds__that_are_unknown_are_left_out(rows, tmp_path):
    """Nobody saw them: the command was killed, and its run was not."""
    pirl = next(found for found in rows if found["method"] == "pirl_jigsaw" and not found["seed"])
    for part in (pirl, *pirl["points"]):
        part.update(UNKNOWN)
    claims = verdicts(Rows(rows, SETTING))
    seeds = {claim["id"]: claim["seeds"] for claim in claims}
    assert (seeds["pirl_over_jigsaw"], seeds["pirl_over_jigsaw_equal_time"]) == ([0, 1, 2], [1, 2])
    write_report(tmp_path, SETTING, rows, claims)
    assert "| PIRL (jigsaw) | 3 | 40,000 | 40.0 |" in (tmp_path / "tables.md").read_text()
    for found in rows:
        for part in (found, *found["points"]):
            part.update(UNKNOWN)
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    assert "| PIRL (jigsaw) | 3 | 40,000 |  |" in (tmp_path / "tables.md").read_text()


def test_seconds__that_differ_have_a_spread(rows, tmp_path):
    """From one cost of an image, which all seeds share, they do not."""
    for found in rows:
        found["seconds"] += found["seed"]
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)))
    tables = (tmp_path / "tables.md").read_text()
    assert "| PIRL (jigsaw) | 3 | 40,000 | 41.0 ± 1.0 | 43.0 ± 1.0 |" in tables


def test_seconds__of_two_points_may_be_equal():
    run = row("npid", 0, 40, seconds=40)
    run["points"][1]["seconds"] = run["points"][0]["seconds"] = 0.0
    assert [at_time(run, t, "linear_top1", 5) for t in (0, 15, 30, 50)] == [20, 25, 30, 40]
