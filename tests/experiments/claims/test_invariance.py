"""The distances of Fig. 4 in ``claims.json``: of which models, and what a failure leaves."""

import torch

from pirl_plugin.evaluation import invariance_run
from pirl_plugin.evaluation.invariance import summarize_distances
from pirl_plugin.experiments.claims.invariance import IMAGES, add_invariance
from pirl_plugin.experiments.claims.plan import job_of
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.settings import Settings
from pirl_plugin.experiments.quickstart_data import Data
from tests.helpers.claims_rows import SETTING, row

PAIR = ("pirl_jigsaw", "jigsaw")


def finished(tmp_path, *methods):
    """A record of finished runs, with their final checkpoints."""
    settings = Settings(SCALES["quick"], Data(tmp_path, tmp_path, 100, 2), tmp_path, 1, 1)
    record = Record(tmp_path / "claims.json", SETTING)
    for method in methods:
        record.add(row(method, 0, 30))
        folder = tmp_path / job_of(record.rows[-1]).name / "pretrain"
        folder.mkdir(parents=True)
        last = record.rows[-1]["epochs"] - 1
        torch.save({}, folder / f"model_final_checkpoint_phase{last}.torch")
    return record, settings


def measured(options):
    """What ``pirl-plugin invariance`` finds: the n-th model's distances are n / 10."""
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
        for n, checkpoint in enumerate(options.checkpoint, 1)
    ]
    return {"images": options.images, "transforms": options.transforms, "models": models}


def test_invariance__of_a_method_and_its_classifier_is_measured_together(tmp_path, monkeypatch):
    monkeypatch.setattr(invariance_run, "measure_invariance", measured)
    record, settings = finished(tmp_path, *PAIR, "pirl_rotation", "npid")
    add_invariance(record, settings)
    found = {r["method"]: r.get("invariance") for r in record.rows}
    assert [found[method]["mean"] for method in PAIR] == [0.11, 0.21]
    assert [found[method]["own_statistics"]["mean"] for method in PAIR] == [0.055, 0.105]
    assert [found[method]["images"] for method in PAIR] == [IMAGES, IMAGES]
    assert found["pirl_rotation"] is found["npid"] is None  # its classifier is not there yet


def test_invariance__of_an_older_kind_is_measured_again(tmp_path, monkeypatch):
    """In the record, and in a file that another checkpoint, or an older command, has left."""
    monkeypatch.setattr(invariance_run, "measure_invariance", measured)
    record, settings = finished(tmp_path, *PAIR)
    for old in record.rows:
        old["invariance"] = {"mean": 0.9}
    left = tmp_path / "invariance" / "pirl_jigsaw_seed0" / "invariance.json"
    left.parent.mkdir(parents=True)
    left.write_text('{"models": [{"checkpoint": "a"}, {"checkpoint": "b"}]}')
    add_invariance(record, settings)
    assert [r["invariance"]["mean"] for r in record.rows] == [0.11, 0.21]
    times = []
    monkeypatch.setattr(invariance_run, "measure_invariance", lambda options: times.append(1))
    for new in record.rows:
        del new["invariance"]
    add_invariance(record, settings)
    assert [r["invariance"]["mean"] for r in record.rows] == [0.11, 0.21]
    assert not times


def test_invariance__that_cannot_be_measured_loses_nothing(tmp_path, monkeypatch, capsys):
    def fail(options):
        raise ValueError("no whole ResNet")

    monkeypatch.setattr(invariance_run, "measure_invariance", fail)
    record, settings = finished(tmp_path, *PAIR)
    add_invariance(record, settings)
    assert [r["linear_top1"] for r in record.rows] == [30, 30]
    assert "no whole ResNet: no invariance of pirl_jigsaw, seed 0" in capsys.readouterr().err
