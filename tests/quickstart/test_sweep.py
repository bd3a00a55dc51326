"""Sweeps: the paper's values, the runs of a model, resuming, and the table."""

import json
from types import SimpleNamespace

import pytest

from pirl_plugin.quickstart import sweep
from pirl_plugin.quickstart.run import Data
from tests.helpers.configs import compose
from tests.helpers.sweeps import finish

VALUES = {  # Sec. 4 of the paper
    "lambda": (0, 0.25, 0.5, 0.75, 1),
    "permutations": (1, 10, 100, 1000, 10000, 362880),
    "jigsaw_permutations": (10, 100, 1000, 10000),
    "negatives": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
}


def _options(image_folder, out, **changed):
    options = {
        "name": "lambda", "data": image_folder, "out": out, "scale": "quick", "linear": [],
        "values": [0, 0.5], "overrides": [],
    }  # fmt: skip
    return SimpleNamespace(**options | changed)


@pytest.fixture
def host(monkeypatch):
    """In place of the host: notes the runs, leaves what it would, fails at will."""
    made = SimpleNamespace(runs=[], failing=())

    def run_host(overrides, folder, title, threads):
        name = f"{folder.parent.name}/{folder.name}"
        made.runs.append(name)
        if name in made.failing:
            raise RuntimeError(f"{title} failed with exit status -9; the end of …")
        finish(folder, {"res4": 30.0, "res5": 40.0} if folder.name == "linear" else None)

    monkeypatch.setattr(sweep, "run_host", run_host)
    return made


def test_sweeps__have_the_values_of_the_paper():
    assert {name: found.values for name, found in sweep.SWEEPS.items()} == VALUES


@pytest.mark.parametrize("name", list(VALUES))
@pytest.mark.parametrize("scale", ["paper", "quick"])
def test_overrides__compose_to_the_swept_value(name, scale, image_folder, tmp_path):
    options = _options(
        image_folder, tmp_path, name=name, scale=scale, linear=["config.SEED_VALUE=7"]
    )
    data = Data(image_folder / "train", image_folder / "val", 20)
    last = VALUES[name][-1]
    config = compose(*sweep.pretraining(options, data, last))
    if name in ("lambda", "negatives"):
        assert config.LOSS.pirl_loss[sweep.SWEEPS[name].key.rpartition(".")[2]] == last
    else:
        assert config.DATA.TRAIN.TRANSFORMS[0]["num_permutations"] == last
    linear = sweep.linear_benchmark(options, data, tmp_path / "weights.torch")
    assert compose(*linear).SEED_VALUE == 7
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
    assert "| 0 | 40.0 |\n| 0.5 | 40.0 |\n| 1 | 40.0 |" in table  # the earlier value stays
    assert (tmp_path / "figure.png").stat().st_size > 1000
    options.overrides = ["config.SEED_VALUE=3"]
    with pytest.raises(ValueError, match="give another folder"):
        sweep.run_sweep(options)
