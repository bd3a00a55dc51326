"""One model for real, through the host: a few images, four epochs."""

import json

import pytest

from pirl_plugin.experiments.claims import command


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
