"""What a row says of how it was made; which recipes are one."""

from dataclasses import replace
from pathlib import Path

import pytest

from pirl_plugin.experiments.claims import methods, provenance
from pirl_plugin.experiments.claims.plan import Job
from pirl_plugin.experiments.claims.provenance import (
    describe_other_precision,
    made_with,
    recipe,
    refuse_other_recipes,
)
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import Data
from tests.helpers.claims_rows import row

HERE = Workspace(
    SCALES["quick"], Data(Path("photos/train"), Path("photos/val"), 10_000, 2), Path("out"), 1, 1
)
PIRL = Job("pirl_jigsaw", 0, 4)


def test_made_with__says_precision_threads_versions_and_hardware(monkeypatch):
    monkeypatch.setattr(methods, "autocast", lambda scale: "bfloat16")
    ours = made_with(PIRL, replace(HERE, threads=2))
    assert (ours["precision"], ours["threads"]) == ("bfloat16 (autocast)", 2)
    assert ours["versions"].keys() >= {"python", "pirl-plugin", "vissl", "torch"}
    assert "2 thread(s) a run" in ours["hardware"]
    for method in ("random", "supervised", "vissl_pirl"):
        assert made_with(Job(method, 0, 4), HERE)["precision"] == "float32"


def test_precision__of_finished_runs_that_is_another_is_said(monkeypatch):
    """Runs of one method in bfloat16 and of its rival in float32 were compared without a word."""
    monkeypatch.setattr(methods, "autocast", lambda scale: "bfloat16")
    made = row("pirl_jigsaw", 0, 30, made_with=made_with(PIRL, HERE))
    supervised = row("supervised", 0, 30, made_with=made_with(Job("supervised", 0, 4), HERE))
    assert describe_other_precision([made, supervised, row("npid", 0, 30)], HERE) is None
    monkeypatch.setattr(methods, "autocast", lambda scale: "null")
    said = describe_other_precision([made, supervised], HERE)
    assert "finished runs are in bfloat16 (autocast), and such runs are in float32 on this" in said


def test_recipe__is_one_on_other_seeds_paths_and_devices(monkeypatch):
    there = Data(Path("/elsewhere/train"), Path("/elsewhere/val"), 10_000, 2)
    monkeypatch.setattr(methods, "autocast", lambda scale: "null")
    slow = recipe(PIRL, HERE)
    monkeypatch.setattr(methods, "autocast", lambda scale: "bfloat16")
    others = (
        recipe(Job("pirl_jigsaw", 1, 4), HERE),
        recipe(PIRL, replace(HERE, data=there, out=Path("b"), threads=2)),
        recipe(PIRL, replace(HERE, scale=replace(HERE.scale, machine="1gpu"))),
    )
    assert set(others) == {slow}


@pytest.mark.parametrize(
    "job",
    [Job("npid", 0, 4), Job("pirl_jigsaw", 0, 6), Job("pirl_jigsaw", 0, 4, (("lambda", 0.25),))],
)
def test_recipe__of_another_job_is_another(job):
    assert recipe(job, HERE) != recipe(PIRL, HERE)


def test_recipe__follows_the_scale_of_untrained_networks_too():
    job = Job("random", 0, 0)
    for changed in ({"trunk": {"DEPTH": 18, "WIDTH_MULTIPLIER": 1}}, {"linear": ("a=b",)}):
        assert recipe(job, replace(HERE, scale=replace(HERE.scale, **changed))) != recipe(job, HERE)


def test_rows__that_do_not_say_their_recipe_are_taken():
    same = row("pirl_jigsaw", 0, 30, made_with=made_with(PIRL, HERE))
    refuse_other_recipes([row("npid", 0, 30), same], HERE, [])


def test_recipe__follows_the_files_of_the_config(monkeypatch):
    """A changed weight decay in a YAML file was not seen, and old rows were mixed with new ones."""
    before = recipe(PIRL, HERE)
    files = provenance._of_files

    def changed(words):
        found = files(words)
        key = "config.OPTIMIZER.weight_decay"
        return {**found, key: "0.5"} if "config=pretrain/pirl/quick_jigsaw" in words else found

    monkeypatch.setattr(provenance, "_of_files", changed)
    assert recipe(PIRL, HERE) != before
    supervised = Job("supervised", 0, 4)
    monkeypatch.undo()
    same = recipe(supervised, HERE)
    monkeypatch.setattr(provenance, "_of_files", changed)
    assert recipe(supervised, HERE) == same


def test_recipe__does_not_tell_a_file_from_an_override_that_says_the_same(monkeypatch):
    before = recipe(PIRL, HERE)
    monkeypatch.setattr(methods, "_heads", lambda method, scale: ["config.LOSS.name=pirl_loss"])
    assert recipe(PIRL, HERE) == before


def test_recipe__is_that_of_runs_from_before_a_key_was_added():
    """Finished runs would have been refused: they had what is now the key's default."""
    key, value = next(iter(provenance._AS_BEFORE.items()))
    assert provenance._settings([f"{key}={value}"]) == []
    assert provenance._settings([f"{key}=another"]) == [f"{key}=another"]
