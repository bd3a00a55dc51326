"""Output folders: claimed by one run, refused to another, files whole."""

import json

import pytest

from pirl_plugin.utils.outputs import check_folder, claim_folder, write_json

RUN = {"data": "photos", "seed": 0, "options": ("a", "b")}


def test_claim_folder__the_same_run_goes_on_and_keeps_what_else_the_file_has(tmp_path):
    folder = tmp_path / "new" / "out"
    assert claim_folder(folder, RUN) == RUN
    write_json(folder / "run.json", {**RUN, "models": [1]})
    assert claim_folder(folder, RUN)["models"] == [1]
    assert json.loads((folder / "run.json").read_text())["models"] == [1]


@pytest.mark.parametrize("change", [{"seed": 1}, {"data": "x"}, {"new": 1}, {"options": []}])
def test_claim_folder__refuses_another_run_and_leaves_the_folder(change, tmp_path):
    claim_folder(tmp_path, RUN)
    before = (tmp_path / "run.json").read_text()
    (key,) = change
    with pytest.raises(ValueError, match=rf"it holds the run of {key} .* \(now .*--out"):
        claim_folder(tmp_path, RUN | change)
    assert (tmp_path / "run.json").read_text() == before


def test_check_folder__writes_nothing(tmp_path):
    check_folder(tmp_path / "out", RUN)
    assert not (tmp_path / "out").exists()


def test_write_json__leaves_the_old_file_where_the_new_one_fails(tmp_path):
    write_json(tmp_path / "a.json", [1])
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", [object()])
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "[\n  1\n]\n"
