"""Sweeps: the paper's values, a model's runs, resuming, and the table."""

import json
from types import SimpleNamespace

import pytest
import sweep

from pirl_plugin.quickstart.images import find_data
from tests.helpers.configs import compose
from tests.helpers.sweeps import finish, finish_svm

VALUES = {  # Sec. 4 in the paper
    "lambda": {"PIRL": (0, 0.25, 0.5, 0.75, 1)},
    "permutations": {
        "PIRL": (1, 10, 100, 1000, 10000, 362880),
        "Jigsaw": (10, 100, 1000, 10000),
    },
    "negatives": {"PIRL": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)},
}
LAST = [(name, method) for name, methods in VALUES.items() for method in methods]


def _options(image_folder, out, **changed):
    options = {
        "name": "lambda", "data": image_folder, "out": out, "scale": "quick", "linear": [],
        "values": [0, 0.5], "overrides": [], "voc": None,
    }  # fmt: skip
    return SimpleNamespace(**options | changed)


@pytest.fixture
def host(monkeypatch):
    """Stand in for VISSL: record runs, write its files, fail on request."""
    made = SimpleNamespace(runs=[], failing=())

    def run_host(overrides, folder, title, threads, script=None):
        name = f"{folder.parent.name}/{folder.name}"
        made.runs.append(name)
        if name in made.failing:
            raise RuntimeError(f"{title} failed with exit status -9; the end of …")
        if folder.name == "svm":
            assert script[-1].endswith("tools/train_svm.py")
            finish_svm(folder, 60)
        else:
            finish(folder, {"res4": 30.0, "res5": 40.0} if folder.name == "linear" else None)

    monkeypatch.setattr(sweep, "run_host", run_host)
    return made


def test_sweeps__have_the_papers_values():
    assert {name: each.values for name, each in sweep.SWEEPS.items()} == VALUES


@pytest.mark.parametrize("scale", ["paper", "quick"])
def test_overrides__compose_to_swept_value(scale, image_folder, tmp_path, subtests):
    for name, method in LAST:
        with subtests.test(name=name, method=method):
            options = _options(
                image_folder, tmp_path, name=name, scale=scale, linear=["config.SEED_VALUE=7"]
            )
            data = find_data(image_folder)
            last = VALUES[name][method][-1]
            config = compose(*sweep.pretraining(options, data, sweep.Model(method, last)))
            if name in ("lambda", "negatives"):
                assert config.LOSS.pirl_loss[sweep.SWEEPS[name].key.rpartition(".")[2]] == last
            else:
                assert config.DATA.TRAIN.TRANSFORMS[0]["num_permutations"] == last
            linear = sweep.benchmark(options, data, tmp_path / "weights.torch")
            measured = compose(*linear)
            assert measured.SEED_VALUE == 7
            assert (measured.MODEL.TRUNK.NAME == "pirl_resnet") == (scale == "quick")
            if scale == "paper":
                assert config.OPTIMIZER.num_epochs == 400


def test_run_sweep__resumes_and_reports(host, image_folder, tmp_path):
    host.failing = ("pirl_0.5/linear",)
    options = _options(image_folder, tmp_path)
    with pytest.raises(RuntimeError, match="linear failed with exit status -9"):
        sweep.run_sweep(options)
    assert host.runs == ["pirl_0/pretrain", "pirl_0/linear", "pirl_0.5/pretrain", "pirl_0.5/linear"]
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    assert rows == [
        {"method": "PIRL", "value": 0, "top1": {"res4": 30.0, "res5": 40.0},
         "best_layer": "res5", "best_top1": 40.0}
    ]  # fmt: skip
    host.failing, host.runs = (), []
    options.values = [0.5, 1]
    sweep.run_sweep(options)
    assert host.runs == ["pirl_0.5/linear", "pirl_1/pretrain", "pirl_1/linear"]
    table = (tmp_path / "results.md").read_text()
    assert "| 0 | 40.0 |\n| 0.5 | 40.0 |\n| 1 | 40.0 |" in table  # the earlier value is kept
    assert (tmp_path / "figure.png").stat().st_size > 1000
    options.overrides = ["config.SEED_VALUE=3"]
    with pytest.raises(ValueError, match="choose another folder"):
        sweep.run_sweep(options)


def test_permutations__are_measured_on_voc07_for_both_methods(host, image_folder, tmp_path):
    """Fig. 7; at the paper's scale, with points from the paper's tables."""
    voc = tmp_path / "VOC2007"
    options = _options(
        image_folder,
        tmp_path / "out",
        name="permutations",
        scale="paper",
        voc=voc,
        values=[10, 100],
    )
    sweep.run_sweep(options)
    assert host.runs[:2] == ["pirl_10/pretrain", "pirl_10/svm"]
    assert host.runs[-1] == "jigsaw_100/svm"
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert [(row["method"], row["value"]) for row in results] == [
        ("PIRL", 10), ("PIRL", 100), ("Jigsaw", 10), ("Jigsaw", 100),
    ]  # fmt: skip
    assert results[0]["best_map"] == pytest.approx(60)
    table = (tmp_path / "out" / "results.md").read_text()
    assert "| Number of permutations | PIRL, SVM on VOC07, mAP, % | Jigsaw, SVM on" in table
    assert "| 10 | 60.0 | 60.0 |" in table
    overrides = sweep.benchmark(options, find_data(image_folder), tmp_path / "weights.torch")
    config = compose(*overrides)
    assert config.DATA.TRAIN.DATA_PATHS == [str(voc)]
    assert config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY
    assert config.MODEL.TRUNK.NAME == "resnet"


def test_figure__shows_runs_and_paper_points():
    measured = {"PIRL": {1: 60.0, 362880: 78.0}, "Jigsaw": {10: 55.0, 10000: 63.0}}
    paper = sweep.published_points("permutations")
    figure = sweep.draw("permutations", measured, paper, "SVM on VOC07, mAP, %")
    lines = {
        line.get_label(): (*line.get_xdata(), *line.get_ydata()) for line in figure.axes[0].lines
    }
    assert lines == {
        "PIRL": (1, 362880, 60, 78),
        "Jigsaw": (10, 10000, 55, 63),
        "PIRL, paper": (362880, 79.8),
        "Jigsaw, paper": (2000, 64.5),
    }
