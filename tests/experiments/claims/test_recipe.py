"""``--recipe``: the loss of all contrastive methods, which one comparison has one of."""

import json
from pathlib import Path

import pytest

from pirl_plugin.experiments.claims import command
from pirl_plugin.experiments.claims.methods import METHODS, pretraining
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.scales import scale_with
from pirl_plugin.experiments.data import Data
from tests.helpers.claims_command import claims, recorded
from tests.helpers.claims_rows import SETTING
from tests.helpers.configs import compose

DATA = Data(Path("photos/train"), Path("photos/val"), 10_000, 20)
CONTRASTIVE = [name for name, method in METHODS.items() if method.contrastive]


@pytest.mark.parametrize("method", CONTRASTIVE)
def test_recipe__is_that_of_all_contrastive_methods(method):
    def loss(recipe):
        config = compose(*pretraining(method, scale_with("quick", recipe), DATA, 24, 0))
        return config.LOSS.pirl_loss

    paper, quick = loss("paper"), loss("quick_jigsaw")
    assert (paper.temperature, quick.temperature) == (0.1, 0.2)
    assert quick.bank.init == "embeddings"
    share = {"npid": 0, "npidpp": 0}.get(method)
    expected = (0.5, 0.75) if share is None else (0, 0)
    assert (paper.lambda_invariance, quick.lambda_invariance) == expected


def test_recipe__is_said_in_the_file_and_its_tables(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--recipe", "quick_jigsaw", "--seeds", "1")
    setting = recorded(tmp_path / "claims.json")["setting"]
    assert setting["recipe"] == "quick_jigsaw"
    assert "--recipe quick_jigsaw" in setting["command"]
    assert "λ = 0.75, τ = 0.2, a bank of embeddings" in (tmp_path / "tables.md").read_text()
    command.main(["--report-only", "--out", str(tmp_path)])
    assert recorded(tmp_path / "claims.json")["setting"] == setting


def test_recipe__of_another_comparison_is_refused(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    with pytest.raises(SystemExit, match=r"setting\.recipe = paper: expected quick_jigsaw, .*"):
        claims(image_folder, tmp_path, "--seeds", "1", "--recipe", "quick_jigsaw")


def test_recipe__of_a_file_that_names_none_is_the_papers(tmp_path):
    Record(tmp_path / "claims.json", SETTING).write([])
    Record(tmp_path / "claims.json", {**SETTING, "recipe": "paper"})
    with pytest.raises(SystemExit, match=r"setting\.recipe = paper: expected quick_jigsaw"):
        Record(tmp_path / "claims.json", {**SETTING, "recipe": "quick_jigsaw"})


def test_sweeps__vary_the_papers_recipe_alone(image_folder, tmp_path, capsys):
    given = ["--data", str(image_folder), "--out", str(tmp_path), "--dry-run"]
    words = [*given, "--recipe", "quick_jigsaw"]
    with pytest.raises(SystemExit):
        command.main([*words, "--sweeps", "lambda"])
    assert "--sweeps: expected none with --recipe quick_jigsaw" in capsys.readouterr().err
    command.main(words)
    assert "λ = " not in capsys.readouterr().out
    command.main(given)
    assert "PIRL (jigsaw), λ = 0.25" in capsys.readouterr().out


def test_report_only__reads_a_file_that_names_no_recipe(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    file = tmp_path / "claims.json"
    content = recorded(file)
    del content["setting"]["recipe"]
    file.write_text(json.dumps(content))
    claims(image_folder, tmp_path, "--report-only")
    assert recorded(file)["setting"]["recipe"] == "paper"
