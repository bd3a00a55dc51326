"""The table and the figure of a sweep, from results made by hand."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.quickstart.sweep.results import Result, figure, label, markdown, write_results

PERMUTATIONS = [
    Result("PIRL", 1, {"res4": 50.0, "res5": 52.34}),
    Result("PIRL", 10, {}),
    Result("PIRL", 362880, {"res4": 55.5, "res5": 61.25}),
    Result("Jigsaw", 10, {"res4": 44.0, "res5": 31.0}),
]
LAMBDA = [Result("PIRL", 0, {"res5": 50.0}), Result("PIRL", 0.25, {"res5": 61.0})]


def test_markdown__has_a_column_for_each_method_and_blanks():
    found = markdown("permutations", PERMUTATIONS, {"scale": "paper", "linear": ""})
    assert found == (
        "| \\|T\\| | PIRL | Jigsaw |\n"
        "|---|---|---|\n"
        "| 1 | 52.3 res5 |  |\n"
        "| 10 |  | 44.0 res4 |\n"
        "| 9! | 61.2 res5 |  |\n"
        "\n"
        "Top-1 of linear classifiers on the frozen trunk, percent, of the best layer.\n"
        "\n"
        "- scale: paper\n"
        "- paper: 79.8 mAP on VOC07 at an |T| not stated (Table 5); the rest of the curve is a "
        "plot without numbers\n"
    )


def test_markdown__leaves_out_the_layer_where_there_is_one():
    assert "| 0.25 | 61.0 |\n" in markdown("lambda", LAMBDA, {})


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "0"), (0.25, "0.25"), (32768, "32,768"), (362880, "9!")]
)
def test_label__is_as_people_read_it(value, expected):
    assert label(value) == expected


def test_figure__draws_the_best_layer_of_each_method():
    (axes,) = figure("permutations", PERMUTATIONS).axes
    pirl, jigsaw = axes.lines
    np.testing.assert_array_equal(pirl.get_xdata(), [1, 10, 362880])
    np.testing.assert_array_equal(pirl.get_ydata(), [52.34, math.nan, 61.25])
    np.testing.assert_array_equal(jigsaw.get_xydata(), [[10, 44.0]])
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "Number of permutations |T|"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["PIRL", "Jigsaw"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10", "9!"]


def test_figure__of_lambda_is_linear_and_of_one_method():
    (axes,) = figure("lambda", LAMBDA).axes
    assert axes.get_xscale() == "linear"
    assert axes.get_legend() is None


def test_write_results__writes_table_and_figure(tmp_path):
    write_results(tmp_path, "lambda", LAMBDA, {"scale": "quick"})
    assert json.loads((tmp_path / "results.json").read_text()) == {
        "sweep": "lambda",
        "settings": {"scale": "quick"},
        "results": [
            {
                "method": "PIRL",
                "value": value,
                "top1": {"res5": top1},
                "best_layer": "res5",
                "best_top1": top1,
            }
            for value, top1 in ((0, 50.0), (0.25, 61.0))
        ],
    }
    assert (tmp_path / "results.md").read_text() == markdown("lambda", LAMBDA, {"scale": "quick"})
    assert np.asarray(Image.open(tmp_path / "figure.png").convert("L")).std() > 0
    assert "<svg" in (tmp_path / "figure.svg").read_text()


VOC07 = [
    Result("PIRL", 362880, {"res5": 61.0}, {"res4": 70.0, "res5": 79.0}),
    Result("Jigsaw", 10, {"res5": 31.0}, {}),
]


def test_markdown__has_voc07_beside_top1():
    found = markdown("permutations", VOC07, {"scale": "paper"})
    assert found.startswith(
        "| \\|T\\| | PIRL, VOC07 SVM mAP | PIRL, linear top-1 "
        "| Jigsaw, VOC07 SVM mAP | Jigsaw, linear top-1 |\n"
        "|---|---|---|---|---|\n"
        "| 10 |  |  |  | 31.0 |\n"
        "| 9! | 79.0 res5 | 61.0 |  |  |\n"
    )
    assert (
        "- paper: 79.8 mAP on VOC07 at an |T| not stated (Table 5); the rest of the curve is"
        in found
    )


def test_figure__shows_voc07_above_top1_with_the_papers_printed_value():
    above, below = figure("permutations", VOC07, of_the_paper=True).axes
    np.testing.assert_array_equal(above.lines[0].get_xydata(), [[362880, 79.0]])
    assert list(above.lines[-1].get_ydata()) == [79.8, 79.8]  # whose |T| the paper does not state
    np.testing.assert_array_equal(below.lines[0].get_xydata(), [[362880, 61.0]])
    assert len(below.lines) == 2  # the paper has no top-1 for |T|
    (axes,) = figure("lambda", LAMBDA, of_the_paper=True).axes
    np.testing.assert_array_equal(axes.lines[-1].get_xydata(), [[0.5, 62.2]])


def test_write_results__keeps_voc07_of_each_layer(tmp_path):
    write_results(tmp_path, "permutations", VOC07, {"scale": "quick", "VOC07": "VOC2007"})
    first, second = json.loads((tmp_path / "results.json").read_text())["results"]
    assert (first["best_voc07_map"], first["voc07"]["res4"]) == (79.0, 70.0)
    assert (second["best_voc07_map"], second["voc07"]) == (None, {})


def test_write_results__before_anything_is_measured(tmp_path):
    write_results(tmp_path, "negatives", [Result("PIRL", 64, {})], {})
    assert "| 64 |  |" in (tmp_path / "results.md").read_text()
