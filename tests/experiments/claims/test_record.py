"""``claims.json``: what is taken over, what is refused, what a kill leaves."""

import json

import pytest

from pirl_plugin.experiments.claims.record import Record
from tests.helpers.claims_rows import SETTING, row


def test_record__is_read_again(tmp_path):
    record = Record(tmp_path / "claims.json", SETTING)
    record.add(row("npid", 1, 30))
    record.add(row("npid", 0, 30))
    record.add(row("npid", 1, 31))  # made again: the later one stays
    record.write([{"id": "a"}])
    again = Record(tmp_path / "claims.json", SETTING)
    assert [(r["seed"], r["linear_top1"]) for r in again.rows] == [(0, 30), (1, 31)]
    assert json.loads((tmp_path / "claims.json").read_text())["claims"] == [{"id": "a"}]
    assert [file.name for file in tmp_path.iterdir()] == ["claims.json"]


def test_record__takes_what_it_lacks_from_another_file(tmp_path):
    committed = Record(tmp_path / "committed.json", SETTING)
    committed.add(row("npid", 0, 30))
    committed.add(row("jigsaw", 0, 20))
    committed.write([])
    record = Record(tmp_path / "claims.json", SETTING)
    record.add(row("npid", 0, 33))
    record.take(tmp_path / "committed.json")
    assert {r["method"]: r["linear_top1"] for r in record.rows} == {"npid": 33, "jigsaw": 20}


def test_record__takes_the_invariance_of_the_same_run_alone(tmp_path):
    """Two processes with a folder each measure a pair where both of its models are."""
    committed = Record(tmp_path / "committed.json", SETTING)
    for seed in (0, 1):
        committed.add({**row("pirl_jigsaw", seed, 30), "invariance": {"mean": 0.5}})
    committed.write([])
    record = Record(tmp_path / "claims.json", SETTING)
    record.add(row("pirl_jigsaw", 0, 30))
    record.add(row("pirl_jigsaw", 1, 31))  # another run of it
    record.take(tmp_path / "committed.json")
    assert [r.get("invariance") for r in record.rows] == [{"mean": 0.5}, None]


@pytest.mark.parametrize(
    ("key", "value"), [("scale", "gpu"), ("epochs", 8), ("network", {"negatives": 64})]
)
def test_record__refuses_runs_of_another_setting(tmp_path, key, value):
    Record(tmp_path / "claims.json", {**SETTING, key: value}).write([])
    with pytest.raises(SystemExit, match=rf"setting\.{key}.* = .*: expected .*another --out"):
        Record(tmp_path / "claims.json", SETTING)


def test_record__takes_the_same_images_by_another_name(tmp_path):
    data = {**SETTING["data"], "name": "elsewhere"}
    Record(tmp_path / "claims.json", {**SETTING, "data": data, "hardware": "x"}).write([])
    Record(tmp_path / "claims.json", SETTING)


def test_record__tells_sizes_of_the_same_images_apart(tmp_path):
    """Imagenette at 160 and at 320 px has the same names and counts."""

    def setting(train_bytes):
        return {**SETTING, "data": {**SETTING["data"], "train_bytes": train_bytes}}

    file = tmp_path / "claims.json"
    Record(file, SETTING).write([])  # an earlier version's, which does not say
    Record(file, setting(100)).write([])
    with pytest.raises(SystemExit, match=r"setting\.data\.train_bytes = 100: expected 400"):
        Record(file, setting(400))
    Record(file, setting(100))
