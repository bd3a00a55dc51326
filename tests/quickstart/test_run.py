"""The quickstart end to end, in seconds, and refusals."""

import json
import os
import re
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import torch

from pirl_plugin.quickstart import command, run
from pirl_plugin.quickstart.images import find_data
from pirl_plugin.quickstart.methods import METHODS
from pirl_plugin.quickstart.run import run_quickstart
from pirl_plugin.system.failures import FailedProcess
from tests.helpers.configs import compose
from tests.helpers.launched import gone, started

_ABOUT = {"seed", "epochs", "method", "processor", "threads", "seconds"}


def test_quickstart__writes_results_and_report_once(image_folder, tmp_path, capfd, monkeypatch):
    out = tmp_path / "out"
    images = shutil.copytree(image_folder, tmp_path / "images")
    words = ["--data", str(images), "--out", str(out), "--epochs", "2"]
    words += ["--method", "jigsaw"]
    command.main(words)
    results = json.loads((out / "results.json").read_text())
    assert set(results) == {"random", "pirl", "gain", "layers", *_ABOUT}
    for measure, (gain, error) in results["gain"].items():
        difference = results["pirl"][measure] - results["random"][measure]
        assert gain == pytest.approx(difference, abs=0.02)
        assert error > 0
    for name, by_layer in results["layers"].items():
        assert list(by_layer) == ["conv1", "res2", "res3", "res4", "res5", "last"]
        assert by_layer["last"] == pytest.approx(results[name]["knn_top1"], abs=0.01)
    for name in ("random", "pirl"):
        assert set(results[name]) == {"linear_top1", "knn_top1"}
        assert all(0 <= value <= 100 for value in results[name].values())
    assert (results["seed"], results["epochs"]) == (0, 2)
    page = (out / "report.html").read_text()
    assert "A ResNet-10 saw 20 images without labels for 2 epochs" in page
    assert "kNN in the memory bank" in page
    assert str(out / "pretrain" / "model_final_checkpoint_phase1.torch") in page
    assert "http" not in re.sub(
        "http://www.w3.org|http-equiv", "", page
    )  # nothing is loaded from the web
    printed, errors = capfd.readouterr()
    assert re.search(r"20 images in .*; epochs: 2", printed)
    assert "Evaluating" in printed
    assert "CUDA" not in printed + errors

    with monkeypatch.context() as patched:
        patched.setattr(run, "run_host", None)  # everything is already finished
        command.main(words)
    assert f"Open {out / 'report.html'}" in capfd.readouterr().out
    whole = (out / "results.json").read_text()
    for damaged in ("", whole[:99], "[]"):
        (out / "results.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"results\.json is damaged\. Delete it"):
            command.main(words)
    (out / "results.json").write_text(whole)
    # As if killed during the evaluation.
    (out / "report.html").unlink()
    command.main(words)
    assert (out / "report.html").is_file()
    again = json.loads((out / "results.json").read_text())
    assert again["pirl"] == results["pirl"]
    with pytest.raises(ValueError, match="choose another folder"):
        run_quickstart(images, out, epochs=3)
    # A replaced image invalidates the report and the finished classifiers.
    os.utime(images / "val" / "ants" / "0.jpg", (1, 1))
    with pytest.raises(ValueError, match="belongs to the run with digest of the images"):
        command.main(words)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "title"), [("rotation", "PIRL (rotation)"), ("npid", "NPID")])
def test_quickstart__runs_other_methods(method, title, image_folder, tmp_path, capfd):
    out = tmp_path / "out"
    words = ["--data", str(image_folder), "--out", str(out), "--epochs", "1", "--method", method]
    command.main(words)
    page = (out / "report.html").read_text()
    assert f"<h1>{title} quickstart</h1>" in page
    assert "atches" not in page
    assert f"Evaluating {title}" in capfd.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_method__views_match_training(method):
    config = compose("config=pretrain/pirl/quick_jigsaw", *METHODS[method].overrides)
    entry = config.DATA.TRAIN.TRANSFORMS[0]
    pixels = torch.randint(256, (3, 90, 120), dtype=torch.uint8)
    views = METHODS[method].views
    expected = type(views).from_entry(entry)(pixels, np.random.default_rng(0))
    made = views(pixels, np.random.default_rng(0))
    assert made.keys() == expected.keys()
    assert all(torch.equal(made[name], view) for name, view in expected.items())
    assert list(config.DATA.TRAIN.INPUT_KEY_NAMES)[-1] == "images"


@pytest.mark.slow
def test_quickstart__trains_on_a_flat_folder(image_folder, tmp_path, capfd):
    flat, out = tmp_path / "flat", tmp_path / "out"
    flat.mkdir()
    for i, path in enumerate(sorted((image_folder / "train").rglob("*.jpg"))[:8]):
        shutil.copy(path, flat / f"{i}.jpg")
    run_quickstart(flat, out, epochs=1)
    assert set(json.loads((out / "results.json").read_text())) == _ABOUT
    assert "No accuracy was measured" in (out / "report.html").read_text()
    assert "so no accuracy is measured" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_quickstart__ends_started_run(number, image_folder, tmp_path):
    """The training run saves and stops instead of continuing unattended."""
    out = tmp_path / "out"
    words = ["quickstart", "--data", str(image_folder), "--out", str(out), "--epochs", "500"]
    command = [sys.executable, "-m", "pirl_plugin"]
    with started(words, tmp_path / "console", command=command) as quickstart:
        log = out / "pretrain" / "log.txt"
        while not (log.is_file() and "[ep: 5]" in log.read_text()):
            assert quickstart.process.poll() is None
            time.sleep(0.2)
        os.kill(quickstart.process.pid, number)
        assert quickstart.status() == (143 if number == signal.SIGTERM else -number)
        assert gone(quickstart, seconds=120)
    assert "stopped by SIGTERM" in log.read_text()


def test_run_host__quotes_error_of_failed_run(tmp_path):
    with pytest.raises(FailedProcess, match=r"training failed .* status \d+: .*no_such_config"):
        run.run_host(["config=no_such_config"], tmp_path, "training", threads=1)


def test_find_data__recognizes_folder_layouts(image_folder, tmp_path):
    data = find_data(image_folder)
    assert data.labeled.test.path == str(image_folder / "val")
    assert data.train.path == str(image_folder / "train")
    assert len(data.train) == 20
    assert find_data(image_folder / "train" / "ants").labeled is None
    shutil.copytree(image_folder, tmp_path / "data")
    (tmp_path / "data" / "val" / "ants").rename(tmp_path / "data" / "val" / "wasps")
    with pytest.raises(ValueError, match="wasps"):
        find_data(tmp_path / "data")
    (tmp_path / "data" / "val").rename(tmp_path / "data" / "bus")  # now train is a class
    assert find_data(tmp_path / "data").labeled.held_out_of == tmp_path / "data"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="image"):
        find_data(tmp_path / "empty")
    shutil.copy(next((tmp_path / "data").rglob("*.jpg")), tmp_path / "empty")
    with pytest.raises(ValueError, match="images = 1: expected at least two"):
        find_data(tmp_path / "empty")
    for folder in ("train/ants", "train/bees", "val/ants", "val/bees"):
        (tmp_path / "single" / folder).mkdir(parents=True)
        shutil.copy(
            tmp_path / "empty" / os.listdir(tmp_path / "empty")[0], tmp_path / "single" / folder
        )
    with pytest.raises(ValueError, match="No class has two images"):  # before hours of training
        find_data(tmp_path / "single")


def test_parse__photos_default_to_npid(tmp_path):
    """In equal time, NPID is often ahead of PIRL on a few thousand photos (docs/results)."""
    assert command.parse(["--data", str(tmp_path)]).method == "npid"
    assert command.parse([]).method == "jigsaw"


def test_parse__refuses_invalid_options(tmp_path, capsys):
    for words, said in (
        (["--method", "simclr"], "argument --method: invalid choice: 'simclr'"),
        (["--epochs=0"], "argument --epochs: 0: expected"),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.parse(words)
        assert stopped.value.code == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_quickstart__beats_random_initialization(tmp_path):
    """The default run on sample images, which takes minutes."""
    run_quickstart(None, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["pirl"]["knn_top1"] >= results["random"]["knn_top1"] + 20
    assert results["pirl"]["linear_top1"] >= results["random"]["linear_top1"] + 15
