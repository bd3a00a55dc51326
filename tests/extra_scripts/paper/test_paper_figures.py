"""Figures 2 and 5: the paper's points, with runs beside them."""

from pathlib import Path

from paper_figures import draw_layers, draw_parameters
from paper_tables import Run, lay_out
from published import LAYERS


def run(name, row, top1, **differs):
    layers = {f"ImageNet {layer}": value for layer, value in zip(LAYERS, top1, strict=True)}
    figures = {"ImageNet": max(top1), **layers}
    return Run(Path(name), row, figures, "res5", differs)


TABLES = lay_out(
    [
        run("one", "PIRL", (6, 29, 41, 57, 62)),
        run("two", "PIRL", (6, 29, 41, 57, 63)),
        run("short", "PIRL", (6, 22, 31, 40, 41), epochs=(10, 800)),
        run("narrow", "PIRL", (5, 6, 7, 8, 9), **{"MODEL.TRUNK.RESNETS.DEPTH": (18, 50)}),
    ]
)


def test_parameters__shows_paper_points_and_runs():
    figure = draw_parameters(TABLES)
    drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].lines]
    assert len(drawn) == 20 + 2  # from the paper; other networks are omitted
    for point in ((25.6, 63.6), (98, 67.4), (51.2, 65.7), (670, 68.1)):  # from the paper
        assert point in drawn
    assert (25.6, 62.5) in drawn  # mean over two runs
    (hollow,) = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert hollow.get_ydata()[0] == 41
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert "PIRL: 62.5" in texts
    assert "short, not PIRL: 41.0" in texts


def test_layers__shows_pirl_jigsaw_and_runs():
    lines = {line.get_label(): list(line.get_ydata()) for line in draw_layers(TABLES).axes[0].lines}
    assert lines["PIRL, paper"] == [6.2, 30.0, 40.1, 56.6, 63.6]
    assert lines["Jigsaw, paper"] == [12.4, 28.0, 39.9, 45.7, 34.2]
    assert lines["PIRL, run"] == [6, 29, 41, 57, 62.5]
    assert lines["short, not PIRL"] == [6, 22, 31, 40, 41]
    assert "Jigsaw, run" not in lines
    assert not any("NPID" in label for label in lines)
