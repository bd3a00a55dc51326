"""extra_scripts/claims: the plan, runs as subprocesses, verdicts, and committed tables."""

import copy
import json
from pathlib import Path
from unittest import mock

import pytest
import report
import run
import verdicts
import vit
from verdicts import LAYERS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["docs/results", "docs/results/quick_jigsaw"])
def test_committed_runs__reproduce_committed_tables_and_figures(folder, tmp_path):
    content = json.loads((ROOT / folder / "claims.json").read_text("utf-8"))
    assert verdicts.verdicts(content) == content["claims"]
    report.write_report(tmp_path, content)
    assert (tmp_path / "tables.md").read_text("utf-8") == (ROOT / folder / "tables.md").read_text(
        "utf-8"
    )
    drawn = {file.name for file in tmp_path.glob("*.svg")}
    assert drawn >= {file.name for file in (ROOT / folder).glob("*.svg")}
    assert "accuracy_epochs.svg" in drawn


def test_transformer__has_the_printed_accuracies(capsys):
    runs = json.loads((ROOT / "docs/results/starts/vit.json").read_text("utf-8"))["runs"]
    vit.print_accuracies(runs)
    untrained, trained, gain = capsys.readouterr().out.replace("\u00a0", " ").splitlines()
    guide = " ".join((ROOT / "docs/guides/library.md").read_text("utf-8").split())
    rise = f"from {untrained.removeprefix('untrained ')} to {trained.removeprefix('pirl ')} %"
    assert f"{rise}, by {gain.removeprefix('gain +')} points" in guide


def row(method, seed, top1, epochs=None, **changed):
    epochs = verdicts.main_epochs(method, 4) if epochs is None else epochs
    layers = {**dict.fromkeys(LAYERS, top1 - 1.0), "res5avg": top1}
    point = {"images_seen": epochs * 10, "seconds": epochs * 10.0, "linear_top1": top1}
    point |= {"knn_top1": top1 / 2, "linear_by_layer": layers}
    about = {"method": method, "seed": seed, "epochs": epochs, "changed": changed}
    return {**copy.deepcopy(point), **about, "points": [point]}


def claim(name, rows):
    only_it = {name: verdicts.COMPARISON["claims"][name]}
    with mock.patch.dict(verdicts.COMPARISON, claims=only_it):
        (found,) = verdicts.verdicts({"setting": {"epochs": 4}, "runs": rows})
    return found


def test_over__is_paired_by_seed():
    # Differences 4, 5, 6 at any seed's level: 5 ± 4.303 · 1 / √3.
    rows = [row("npid", seed, 30 + 10 * seed) for seed in range(3)]
    rows += [row("pirl_jigsaw", seed, 34 + 11 * seed) for seed in range(3)]
    found = claim("pirl_over_npid", rows)
    assert (found["verdict"], found["difference"], found["seeds"]) == ("held", 5, [0, 1, 2])
    assert found["interval"] == pytest.approx([2.5159, 7.4841], abs=1e-3)
    assert found["by_knn"]["difference"] == 2.5
    assert claim("pirl_over_npid", [*rows[:1], *rows[3:4]])["verdict"] == "undecided"
    assert claim("pirl_over_jigsaw", rows)["seeds"] == []


def test_plan__trains_shared_default_once():
    jobs = run.plan([*run.METHODS], [*run.SWEEPS], 3, 24)
    assert len(jobs) == len(set(jobs)) == 78  # as many as in docs/results
    content = json.loads((ROOT / "docs/results/claims.json").read_text("utf-8"))
    assert {run.job_of(found) for found in content["runs"]} == set(jobs)


def test_methods__compose(subtests):
    for method in ("npidpp", "pirl_rotation", "rotation", "vissl_pirl", "supervised"):
        with subtests.test(method=method):
            from vissl.utils.hydra_config import compose_hydra_configuration

            job = run.Job(method, 7, 3)
            config = compose_hydra_configuration(
                run.pretraining(job, "paper", Path("/d"), 5)
            ).config
            assert (config.SEED_VALUE, config.OPTIMIZER.num_epochs) == (7, 3)
            assert config.DATA.TRAIN.DATA_PATHS == ["/d/train"]
            assert config.CHECKPOINT.CHECKPOINT_FREQUENCY == 1  # n saves after epochs 1, n + 1, ...
            assert config.OPTIMIZER.param_schedulers.lr.end_value == 3e-5
            trunk = config.MODEL.TRUNK.PIRL_RESNET
            assert (trunk.DEPTH, trunk.WIDTH_MULTIPLIER) == (10, 0.5)
            if "negatives" in run.METHODS[method]:
                loss = config.LOSS.pirl_loss
                assert loss.lambda_invariance == (0 if "npid" in method else 0.5)
                assert (loss.temperature, loss.num_negatives) == (
                    0.1,
                    run.METHODS[method]["negatives"],
                )


def test_run__runs_once_and_omits_time_if_resumed(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"; echo ran >> "$(dirname $0)/count"; exit $STATUS\n')
    python.chmod(0o755)
    monkeypatch.setattr(run.sys, "executable", str(python))
    monkeypatch.setenv("STATUS", "3")
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError, match=r"run failed: .* train a=1"):
        run.run([*run.PLUGIN, "train", "a=1"], folder)
    monkeypatch.setenv("STATUS", "0")
    assert run.run([*run.PLUGIN, "train", "a=1"], folder) is None
    assert run.run([*run.PLUGIN, "train", "a=1"], folder) is None
    assert run.run([*run.PLUGIN, "train"], tmp_path / "other") >= 0
    assert (tmp_path / "count").read_text().count("ran") == 3
