"""The measurements of a checkpoint: those of its trunk, in the files that commands write."""

import json
import re

import pytest
import torch

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.checkpoints.measurements import find_results
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.trunk import find_trunk
from pirl_plugin.cli import run
from tests.helpers.export_files import small_trunk, vissl_checkpoint
from tests.helpers.finished_runs import measured

KNN = {"knn_top1": 41.5, "k": 20, "classes": 10, "train_images": 50, "test_images": 10}


def write(file, **content):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def checkpoints(tmp_path):
    """Two checkpoints of different weights, each in a folder of its own."""
    paths = [tmp_path / name / "checkpoint.torch" for name in ("mine", "other")]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        torch.save(vissl_checkpoint(small_trunk(18, width=0.25, seed=seed)), path)
    return paths


def found(checkpoint, *given):
    trunk = find_trunk(read_checkpoint(checkpoint), str(checkpoint))
    return find_results(checkpoint, trunk, list(given))


def test_results__of_another_checkpoint_are_refused(checkpoints, tmp_path):
    mine, other = checkpoints
    for key in ({"knn_top1": 41.5, "checkpoint": str(other)}, {"mean": {}, "weights": str(other)}):
        file = write(tmp_path / "results.json", **key)
        message = f"results.json is of {other}: expected measurements of {mine}, which is exported"
        with pytest.raises(ValueError, match=re.escape(message)):
            found(mine, file)


def test_results__of_an_export_or_a_copy_are_of_the_trunk(checkpoints, tmp_path):
    mine, _ = checkpoints
    export_checkpoint(mine, tmp_path / "mine.pkl", "detectron2")
    mean = {"config": "voc07_pirl", "mean": {"AP": 48.71}, "metric": "11-point AP"}
    file = write(tmp_path / "results.json", weights=str(tmp_path / "mine.pkl"), **mean)
    assert found(mine, file) == ["voc07_pirl: AP 48.7 (11-point AP)"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"top1": 63.6},  # any number was a measurement
        KNN,  # of nobody knows what
        {"knn_top1": "high", "checkpoint": "a.torch"},
        {"mean": None, "weights": "a.torch"},
        {"mean": {"AP": None}, "weights": "a.torch"},
        {"tables": [{"title": "mine"}]},
        {"tables": 3},
    ],
)
def test_results__that_are_no_measurement_are_refused(content, checkpoints, tmp_path):
    file = write(tmp_path / "results.json", **content)
    with pytest.raises(ValueError, match=r"results\.json holds no measurement of a checkpoint"):
        found(checkpoints[0], file)


def test_results__beside_the_checkpoint_are_taken_where_they_name_it(checkpoints):
    mine, other = checkpoints
    write(mine.parent / "a" / "results.json", checkpoint=str(mine), **KNN)
    write(mine.parent / "b" / "results.json", checkpoint=str(other), **KNN | {"knn_top1": 98.7})
    (sentence,) = found(mine)
    assert sentence.startswith("kNN top-1 41.50 % (k = 20, 50 training and 10 test images of 10")


@pytest.mark.parametrize(
    "damaged", [b'{"mean": {"AP": null}, "weights": "other.pkl"}', b"{", b"\xff", b"[]"]
)
def test_results__beside_the_checkpoint_that_cannot_be_read_are_passed_by(damaged, checkpoints):
    mine, _ = checkpoints
    write(mine.parent / "knn" / "results.json", checkpoint=str(mine), **KNN)
    for file in (mine.parent / "results.json", write(mine.parent / "a" / "results.json")):
        file.write_bytes(damaged)
    (sentence,) = found(mine)
    assert sentence.startswith("kNN top-1 41.50 %")


def test_results__that_are_no_json_are_refused_where_they_are_given(checkpoints, tmp_path):
    file = tmp_path / "results.json"
    file.write_text("{")
    with pytest.raises(ValueError, match=r"results\.json is not JSON: "):
        found(checkpoints[0], file)


def test_results__of_tables_are_the_figures_of_the_checkpoints_runs(checkpoints, tmp_path):
    mine, other = checkpoints
    runs = [measured(tmp_path / "linear", mine), measured(tmp_path / "theirs", other)]
    run(["results", *map(str, runs), "--out", str(tmp_path / "tables")])
    sentences = found(mine, tmp_path / "tables" / "results.json")
    assert len([sentence for sentence in sentences if sentence.startswith("ImageNet 40.0 (T")]) == 1
    assert any(sentence.startswith("ImageNet res5 35.0 (Table 7, ") for sentence in sentences)
    (tmp_path / "linear").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"is of .*other/checkpoint"):
        found(mine, tmp_path / "tables" / "results.json")
