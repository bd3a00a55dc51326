"""Figures from finished runs: what is drawn where."""

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.evaluation.tables.figures import layers_figure, parameters_figure, write_figures
from pirl_plugin.evaluation.tables.finished_runs import read_run
from pirl_plugin.evaluation.tables.layout import lay_out
from tests.helpers.finished_runs import measured, pretrained


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        read_run(measured(folder / f"linear{i}", pretrained(folder / f"made{i}"), best=best))
        for i, best in enumerate((60, 62))
    ]
    few = pretrained(folder / "few", "config.LOSS.pirl_loss.num_negatives=64")
    runs.append(read_run(measured(folder / "other", few, best=50)))
    return lay_out(runs)


def labels(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_parameters_figure__has_the_papers_points_and_ours(tables):
    (axes,) = parameters_figure(tables).axes
    points = [tuple(line.get_xydata()[0]) for line in axes.lines if len(line.get_xydata())]
    assert (98, 67.4) in points  # PIRL-c2x
    assert (670, 68.1) in points  # AMDIM
    assert (25.6, 75.9) not in points  # supervised
    assert points.count((25.6, 61.0)) == 1  # the mean of ours, which the other run is not part of
    assert (25.6, 50.0) not in points
    assert labels(axes) == ["PIRL, published", "others, published", "measured here"]
    assert {text.get_text() for text in axes.texts} >= {"PIRL", "PIRL-c2x", "PIRL-ens", "CPC-Huge"}


def test_layers_figure__has_published_and_measured_layers(tables):
    (axes,) = layers_figure(tables).axes
    lines = [line.get_ydata().tolist() for line in axes.lines]
    assert [6.2, 30.0, 40.1, 56.6, 63.6] in lines
    assert [12.4, 28.0, 39.9, 45.7, 34.2] in lines
    assert [10, 20, 30, 61, 56] in lines
    assert [10, 20, 30, 50, 45] in lines
    names = labels(axes)
    assert names[:2] == ["PIRL, published", "Jigsaw, published"]
    assert "PIRL, here" in names
    assert any(name.startswith("other, not PIRL") for name in names)


def test_layers_figure__leaves_many_runs_to_the_table(tables):
    (table,) = [table for table in tables if table["number"] == 7]
    own = table["rows"][-1]
    rows = [*table["rows"], *({**own, "method": f"run{i}, not PIRL: N"} for i in range(20))]
    (axes,) = layers_figure([{**table, "rows": rows}]).axes
    assert labels(axes)[-1] == "run4, not PIRL, here"
    assert axes.get_legend().get_title().get_text() == "15 more runs: see the table"


def test_figures__without_runs_show_what_is_published(tmp_path):
    for name in write_figures(tmp_path, lay_out([])):
        assert (tmp_path / name).stat().st_size > 5000
    image = Image.open(tmp_path / "accuracy_by_layers.png").convert("L")
    assert np.asarray(image).std() > 0
