"""One model: for real, through the host, on a few images; and what an earlier command left."""

import fcntl
import json
import threading

import pytest

from pirl_plugin.experiments.claims import command, model
from pirl_plugin.experiments.claims.plan import Job
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import Data
from pirl_plugin.experiments.launchers import Here
from pirl_plugin.experiments.runs import Run


@pytest.mark.parametrize("points", [[6, 12], None], ids=["pretraining", "linear"])
def test_run__that_an_earlier_command_started_is_waited_for(points, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(Here, "interval", 0.01)
    monkeypatch.setattr(Here, "start", lambda here, run: started.append(released.is_set()))
    released = threading.Event()
    with (tmp_path / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def release():
            released.set()
            fcntl.flock(held, fcntl.LOCK_UN)

        threading.Timer(0.2, release).start()
        model.finish(Run("a run", tmp_path, ()), 1, points)
    assert started == [True]


def test_folder__of_another_recipe_is_refused(tmp_path, monkeypatch):
    """Its checkpoints would be measured as if this one had trained them."""
    monkeypatch.setattr(model, "_pretrain", lambda *given: pytest.fail("it went on"))
    job = Job("npid", 0, 4)
    (tmp_path / job.name).mkdir()
    (tmp_path / job.name / "recipe.json").write_text('{"recipe": "0123"}')
    workspace = Workspace(SCALES["quick"], Data(tmp_path, tmp_path, 100, 2), tmp_path, 1, 1)
    with pytest.raises(ValueError, match=r"npid_4epochs_seed0: .* the recipe of recipe 0123"):
        model.make(job, workspace)


def test_labels__are_the_training_folders_in_both_splits(tmp_path, make_image):
    """A hidden folder of one split moved its labels by one."""
    for name in ("train/.hidden/0.jpg", "train/a/0.jpg", "train/b/0.jpg", "train/0.jpg",
                 "val/a/0.jpg", "val/b/0.jpg"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make_image(tmp_path / name, seed=0)
    for split in ("train", "val"):
        images, labels = model._labelled_images(tmp_path / split, tmp_path / "train", 16)
        assert labels.tolist() == [0, 1]
        assert images.shape == (2, 3, 16, 16)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pirl_jigsaw", "vissl_pirl", "supervised", "rotation"])
def test_model__is_trained_and_measured_at_each_point(image_folder, tmp_path, method):
    arguments = ["--data", str(image_folder), "--out", str(tmp_path), "--seeds", "1", "--sweeps"]
    command.main([*arguments, "--images-seen", "80", "--methods", "random", method])
    random, run = json.loads((tmp_path / "claims.json").read_text())["runs"]
    assert (random["epochs"], random["seconds"]) == (0, 0)
    assert (run["method"], run["epochs"], run["images_seen"]) == (method, 4, 80)
    assert [point["epoch"] for point in run["points"]] == [1, 2, 3, 4]
    assert 0 < run["points"][0]["seconds"] <= run["points"][3]["seconds"] == run["seconds"]
    assert set(run["linear_by_layer"]) == {"conv1", "res2", "res3", "res4", "res5", "res5avg"}
    assert run["linear_top1"] == run["linear_by_layer"]["res5avg"]
    assert 0 <= run["knn_top1"] <= 100
    assert run["made_with"]["threads"] == 1
    assert ("invariance" in run) == (method in ("pirl_jigsaw", "rotation"))


def test_best_layer__is_one_of_the_papers(tmp_path, monkeypatch):
    """The averages of res5, the quickstart's features, could be "the best layer" of a row."""
    monkeypatch.setattr(model, "finish", lambda run, threads: run.folder.mkdir())
    monkeypatch.setattr(model, "linear_top1", lambda folder: {"res5": 20.0, "res5avg": 30.0})
    monkeypatch.setattr(model, "knn_top1", lambda checkpoint, workspace: 10.0)
    data = Data(tmp_path, tmp_path, 10, 2)
    workspace = Workspace(SCALES["quick"], data, tmp_path, 1, 1)
    found = model._evaluate(Job("npid", 0, 1), workspace, tmp_path / "a.torch", tmp_path, 1)
    assert (found["best_layer"], found["linear_best_top1"]) == ("res5", 20.0)
    assert found["linear_top1"] == 30.0
