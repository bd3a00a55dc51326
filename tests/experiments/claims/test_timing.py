"""What an image costs the methods, which replaces the seconds of their runs."""

import dataclasses
import json

import pytest

from pirl_plugin.experiments.claims import timing
from pirl_plugin.experiments.claims.comparison import new_setting
from pirl_plugin.experiments.claims.cost import (
    merged,
    not_timed,
    refuse_other_machine,
    timed,
)
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.verdicts import verdicts
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import find_data
from tests.helpers.claims_rows import SETTING, row

COST = {
    "seconds_per_1000_images": {"pirl_jigsaw": 4.0, "npid": 2.0, "npidpp": 2.0},
    "rounds": {"pirl_jigsaw": [4.0], "npid": [2.0], "npidpp": [2.0]},
    "hardware": "a processor",
    "precision": "float32",
    "versions": {},
    "measured": "2026-01-01",
}


@pytest.fixture
def workspace(image_folder, tmp_path):
    data = dataclasses.replace(find_data(image_folder), num_train=640)
    return Workspace(SCALES["quick"], data, tmp_path, 6, 1)


@pytest.fixture
def setting(workspace):
    return new_setting("quick", workspace.data, 24, 6, 1)


def of_marks(monkeypatch, **marks):
    """A run that is timed has left these marks; returns the titles of the runs."""
    made = []

    def finish(run, threads, points):
        made.append(run)
        slower = 2 if run.title.endswith("timing 2") else 1
        noted = {
            kind: {at: {"cpu": 2 + slower * cpu, "wall": 99 * cpu} for at, cpu in found.items()}
            for kind, found in marks.items()
        }
        run.folder.mkdir()
        (run.folder / "clock.json").write_text(json.dumps({"start": {}, **noted}))

    monkeypatch.setattr(timing, "finish", finish)
    return made


def test_time_methods__is_the_median_of_rounds_in_turn(workspace, setting, monkeypatch):
    """300 steps of 32 images, the last 225 of them in 72 seconds; the second round is slower."""
    made = of_marks(monkeypatch, inside={75: 20, 150: 40}, marks={10: 20, 15: 92})
    cost = timing.time_methods(["random", "npid", "pirl_jigsaw"], workspace, setting, 3)
    assert cost["rounds"] == {"npid": [10.0, 20.0, 10.0], "pirl_jigsaw": [10.0, 20.0, 10.0]}
    assert cost["seconds_per_1000_images"] == {"npid": 10.0, "pirl_jigsaw": 10.0}
    assert cost["precision"] == setting["precision"]
    titles = [run.title for run in made]
    assert titles[:3] == ["NPID, timing 1", "PIRL (jigsaw), timing 1", "NPID, timing 2"]
    assert "config.OPTIMIZER.num_epochs=16" in made[0].overrides  # 312 steps, 20 an epoch
    assert not list((workspace.out / "timing").iterdir())


def test_time_methods__counts_the_smaller_batch_that_ends_an_epoch(workspace, setting, monkeypatch):
    """20 images are one step of an epoch: 312 steps are of 500 epochs."""
    data = dataclasses.replace(workspace.data, num_train=20)
    of_marks(monkeypatch, inside={125: 0}, marks={499: 75})
    cost = timing.time_methods(["npid"], dataclasses.replace(workspace, data=data), setting, 1)
    assert cost["rounds"] == {"npid": [round(1000 * 75 / (374 * 20), 4)]}


def test_time_methods__says_which_run_was_too_short(workspace, setting, monkeypatch):
    of_marks(monkeypatch, marks={1: 1})
    with pytest.raises(SystemExit, match=r"NPID, timing 1: .* saw 1: .* give more images"):
        timing.time_methods(["npid"], workspace, setting, 1)


def test_timed__gives_all_runs_the_seconds_of_one_machine():
    """NPID's run found a machine eight times slower: where it ends, PIRL is half way."""
    rows = [row("random", 0, 5, epochs=0, seconds=0), row("pirl_jigsaw", 0, 40, seconds=80)]
    rows += [row("npid", 0, 36, seconds=320), row("npidpp", 0, 30, epochs=10, seconds=20)]
    found = timed(rows, COST)
    assert [one["seconds"] for one in found] == [0, 160, 80, 200]
    assert [point["seconds"] for point in found[1]["points"]] == [40, 80, 120, 160]
    claims = {claim["id"]: claim for claim in verdicts(Rows(found, SETTING))}
    assert claims["pirl_over_npid_equal_time"]["difference"] == 20 - 36
    assert timed(rows, None) == rows
    assert timed([row("jigsaw", 0, 40)], COST)[0]["seconds"] is None


def test_cost__of_some_methods_is_added_to_that_of_the_same_machine(setting):
    """The others' seconds went, and the claims of equal time with them."""
    other = {**COST, "seconds_per_1000_images": {"jigsaw": 9.0}, "rounds": {"jigsaw": [9.0]}}
    both = merged(COST, other)
    assert both["seconds_per_1000_images"] == {**COST["seconds_per_1000_images"], "jigsaw": 9.0}
    assert both["rounds"]["jigsaw"] == [9.0]
    elsewhere = {**other, "hardware": "another processor"}
    assert merged(COST, elsewhere) == elsewhere
    assert merged(None, COST) == COST
    assert not_timed([row("jigsaw", 0, 40), row("random", 0, 5, epochs=0)], COST) == [
        "Jigsaw classifier"
    ]


def test_cost__of_some_methods_alone_is_refused_on_another_machine(setting):
    refuse_other_machine(None, ["npid"], setting)
    refuse_other_machine(COST, list(COST["seconds_per_1000_images"]), setting)
    here = {**COST, "hardware": setting["hardware"], "precision": setting["precision"]}
    refuse_other_machine(here, ["npid"], setting)
    with pytest.raises(
        SystemExit, match=r"npidpp.* were timed on .*, and this is .*: expected all"
    ):
        refuse_other_machine({**here, "hardware": "another"}, ["npid"], setting)


def test_record__keeps_the_cost(tmp_path, workspace, setting):
    record = Record(tmp_path / "claims.json", setting)
    record.cost = COST
    record.write([])
    assert Record(tmp_path / "claims.json", setting).cost == COST


def test_report__says_how_the_seconds_were_found(tmp_path):
    rows = [row("npid", 0, 40)]
    write_report(tmp_path, SETTING, rows, verdicts(Rows(rows, SETTING)), COST)
    tables = (tmp_path / "tables.md").read_text()
    assert "- `seconds`: of pre-training, by the cost of an image: the median of 1 short" in tables
