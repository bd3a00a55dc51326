"""What identifies feature files and output folders."""

import numpy as np
import pytest

from pirl_plugin.cli import run
from pirl_plugin.evaluation import linear_command
from tests.helpers.host_tools import write_checkpoint, write_classes


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    return write_checkpoint(folder / "10.torch", seed=1, DEPTH=10, WIDTH_MULTIPLIER=0.25)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return write_classes(folder, {"train": 6, "val": 2}, separable=True)


def without(file, *names):
    """Remove arrays from an ``.npz`` file, as if an earlier version had not written them."""
    arrays = dict(np.load(file))
    np.savez(file, **{name: values for name, values in arrays.items() if name not in names})


def test_linear__keeps_classifier_for_other_data(checkpoint, data, tmp_path, monkeypatch):
    other = write_classes(tmp_path / "other", {"train": 6, "val": 2}, separable=True)
    monkeypatch.chdir(tmp_path)
    command = ["linear", "--checkpoint", str(checkpoint), "--size", "32", "--layer", "last"]
    assert run([*command, "--data", str(data)]) == 0
    file = tmp_path / "runs" / "linear" / "classifier.torch"
    written = file.read_bytes()
    with pytest.raises(ValueError, match=f"the run with data {data} .now {other}"):
        run([*command, "--data", str(other)])
    with pytest.raises(ValueError, match=r"the run with layer last .now res3"):
        run([*command[:-1], "res3", "--data", str(data)])
    assert file.read_bytes() == written
    monkeypatch.setattr(linear_command, "_results", lambda fits: {"again": True})
    assert run([*command, "--data", str(data), "--batch", "2", "--workers", "0"]) == 0
    assert "again" in (file.parent / "results.json").read_text()


def test_embed__adds_columns_that_a_finished_file_lacks(checkpoint, data, tmp_path, monkeypatch):
    linear = ["linear", "--checkpoint", str(checkpoint), "--size", "32", "--layer", "last"]
    assert run([*linear, "--data", str(data), "--out", str(tmp_path)]) == 0
    file = tmp_path / "f.npz"
    embed = ["embed", "--checkpoint", str(tmp_path / "classifier.torch"), "--size", "32"]
    embed += ["--data", str(data / "val"), "--out", str(file)]
    assert run(embed) == 0
    content = np.load(file)
    expected = {name: content[name].tolist() for name in content.files}
    without(file, "predicted", "probability")
    monkeypatch.setattr("pirl_plugin.models.trunks.layer_features", None)  # not called again
    assert run(embed) == 0
    content = np.load(file)
    assert {name: content[name].tolist() for name in expected} == expected


def test_embed__refuses_finished_file_without_digests(checkpoint, data, tmp_path):
    file = tmp_path / "f.npz"
    embed = ["embed", "--checkpoint", str(checkpoint), "--size", "32", "--out", str(file)]
    embed += ["--data", str(data / "val")]
    assert run(embed) == 0
    without(file, "digests")
    sentence = r"f\.npz is damaged, or another program or version wrote it\. Choose another file"
    with pytest.raises(ValueError, match=sentence):
        run(embed)
