"""A report on finished runs: it runs nothing, and needs no images."""

import json

import pytest

from pirl_plugin.experiments.claims import command
from tests.helpers.claims_command import claims, recorded, with_recipe


def test_report_only__leaves_what_the_file_says_of_its_runs(image_folder, tmp_path, made):
    claims(image_folder, tmp_path / "out", "--seeds", "1")
    file = tmp_path / "out" / "claims.json"
    elsewhere = {"hardware": "another", "precision": "float16", "versions": {"python": "2.7"}}
    content = recorded(file)
    content["setting"].update(elsewhere)
    file.write_text(json.dumps(content))
    claims(image_folder, tmp_path / "out", "--report-only", "--seeds", "2", "--threads", "4")
    assert recorded(file)["setting"] == content["setting"]
    more = ["--report-only", "--resume", str(file)]
    claims(image_folder, tmp_path / "second", *more)
    assert recorded(tmp_path / "second" / "claims.json")["setting"] == content["setting"]


def test_report_only__runs_nothing(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    made.clear()
    (tmp_path / "tables.md").unlink()
    claims(image_folder, tmp_path, "--report-only")
    assert made == []
    assert (tmp_path / "tables.md").is_file()


def test_report_only__needs_no_images(image_folder, tmp_path, made, capsys):
    claims(image_folder, tmp_path / "first", "--seeds", "1")
    file = tmp_path / "first" / "claims.json"
    out = tmp_path / "second"
    command.main(["--report-only", "--resume", str(file), "--out", str(out)])
    assert recorded(out / "claims.json") == recorded(file)
    command.main(["--report-only", "--resume", str(file), "--out", str(out)])  # of two files
    with_recipe(file, "npid", "0123")
    file.write_text(json.dumps({**recorded(file), "runs": recorded(file)["runs"][1:2]}))
    (out / "claims.json").unlink()
    command.main(["--report-only", "--resume", str(file), "--out", str(out)])
    with pytest.raises(SystemExit, match=r"another made these: NPID, 4 epochs, seed 0; remove"):
        command.main(["--report-only", "--resume", str(file), "--out", str(out)])
    for words, said in (([], "--data: expected a folder"), (["--time", "1"], "--time: expected")):
        with pytest.raises(SystemExit):
            command.main(["--out", str(out), *words, *(["--report-only"] if words else [])])
        assert said in capsys.readouterr().err


def test_report_only__needs_something_to_report_on(image_folder, tmp_path, made):
    with pytest.raises(SystemExit, match=r"expected a claims\.json to report on"):
        claims(image_folder, tmp_path / "typo", "--report-only")
    assert not (tmp_path / "typo").exists()


def test_again__makes_nothing_for_a_report(image_folder, tmp_path, made, capsys):
    with pytest.raises(SystemExit):
        claims(image_folder, tmp_path, "--report-only", "--again", "npid")
    assert "--again: expected without --report-only" in capsys.readouterr().err
