"""The distances of Fig. 4 in ``claims.json``: of which models, and what a failure leaves."""

import pytest
import torch

from pirl_plugin.evaluation import invariance_run
from pirl_plugin.evaluation.invariance import summarize_distances
from pirl_plugin.experiments.claims.invariance import (
    IMAGES,
    add_missing_invariance,
    lacks_invariance,
)
from pirl_plugin.experiments.claims.plan import job_of
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import Data
from tests.helpers.claims_rows import SETTING, row

METHODS = ("pirl_jigsaw", "jigsaw", "rotation")


def finished(tmp_path, *methods):
    """A record of finished runs, with their final checkpoints."""
    workspace = Workspace(SCALES["quick"], Data(tmp_path, tmp_path, 100, 2), tmp_path, 1, 1)
    record = Record(tmp_path / "claims.json", SETTING)
    for method in methods:
        record.add(row(method, 0, 30))
        folder = tmp_path / job_of(record.rows[-1]).name / "pretrain"
        folder.mkdir(parents=True)
        last = record.rows[-1]["epochs"] - 1
        torch.save({}, folder / f"model_final_checkpoint_phase{last}.torch")
    return record, workspace


def measured(checkpoints, data, images, image_size):
    """What is found: the n-th model's distances are n / 10."""
    assert image_size == 64
    models = [
        {
            "name": str(n),
            "checkpoint": str(checkpoint),
            "representation": "f(v_I)",
            **{
                kind: {
                    pairs: summarize_distances(torch.tensor([distance, distance + 0.02]) * factor)
                    for pairs, distance in (("same", n / 10), ("different", 1.0))
                }
                for kind, factor in (("heads", 1), ("own_statistics", 0.5))
            },
            "bank": None,
            "bank_note": "none",
        }
        for n, checkpoint in enumerate(checkpoints, 1)
    ]
    return {"images": images, "models": models}


def test_invariance__of_each_model_is_measured_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(invariance_run, "measure_invariance", measured)
    record, workspace = finished(tmp_path, *METHODS, "npid")
    assert add_missing_invariance(record.rows, workspace) == []
    found = {r["method"]: r.get("invariance") for r in record.rows}
    assert [found[method]["mean"] for method in METHODS] == [0.11] * 3
    assert [found[method]["own_statistics"]["mean"] for method in METHODS] == [0.055] * 3
    assert [found[method]["images"] for method in METHODS] == [IMAGES] * 3
    assert found["npid"] is None


def test_invariance__of_a_swept_model_is_not_measured():
    assert lacks_invariance(row("jigsaw", 0, 30))
    assert not lacks_invariance(row("jigsaw", 0, 30, changed={"permutations": 10}))


def test_invariance__of_an_older_kind_is_measured_again(tmp_path, monkeypatch):
    """In the record, and in a file that another checkpoint, or an older command, has left."""
    monkeypatch.setattr(invariance_run, "measure_invariance", measured)
    record, workspace = finished(tmp_path, "jigsaw")
    (old,) = record.rows
    old["invariance"] = {"mean": 0.9}
    left = tmp_path / job_of(old).name / "invariance" / "invariance.json"
    left.parent.mkdir(parents=True)
    left.write_text('{"models": [{"checkpoint": "a"}]}')
    add_missing_invariance(record.rows, workspace)
    assert old["invariance"]["mean"] == 0.11
    times = []
    monkeypatch.setattr(invariance_run, "measure_invariance", lambda *_, **__: times.append(1))
    del old["invariance"]
    add_missing_invariance(record.rows, workspace)
    assert old["invariance"]["mean"] == 0.11
    assert not times


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no whole ResNet"), "no whole ResNet"),
        (
            torch.OutOfMemoryError("CUDA out of memory\nTried"),
            "OutOfMemoryError: CUDA out of memory",
        ),
    ],
)
def test_invariance__that_cannot_be_measured_loses_nothing(tmp_path, monkeypatch, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(invariance_run, "measure_invariance", fail)
    record, workspace = finished(tmp_path, "pirl_jigsaw")
    title = "PIRL (jigsaw), 4 epochs, seed 0"
    assert add_missing_invariance(record.rows, workspace) == [f"{title}: no invariance: {said}"]
    assert [r["linear_top1"] for r in record.rows] == [30]


def test_invariance__without_a_checkpoint_is_named_once(tmp_path, capsys):
    workspace = Workspace(SCALES["quick"], Data(tmp_path, tmp_path, 100, 2), tmp_path, 1, 1)
    rows = [row("jigsaw", seed, 30) for seed in (0, 1)]
    assert add_missing_invariance(rows, workspace) == []
    (line,) = capsys.readouterr().out.splitlines()
    assert "Jigsaw classifier, 4 epochs, seed 0; Jigsaw classifier, 4 epochs, seed 1" in line
    assert "--again" in line
