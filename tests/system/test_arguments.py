"""Arguments are checked before anything slow, and typos are named."""

import re
from pathlib import Path

import pytest

from pirl_plugin.cli import COMMANDS, run
from pirl_plugin.system.arguments import Parser
from tests.helpers.programs import run_python

WITHOUT_OPTIONS = ("train",)  # Hydra's overrides


def error(capsys, command, words):
    with pytest.raises(SystemExit, match="2"):
        command(words)
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - WITHOUT_OPTIONS))
def test_commands__name_typo_before_missing_options(command, capsys):
    sentence = error(capsys, run, [command, "--hepl"])
    assert sentence.endswith("unknown option --hepl; did you mean --help?")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-checkpoint", "a"], "unknown option -checkpoint; did you mean --checkpoint?"),
        (["--checkpoint", "a", "--foo=1"], "unknown option --foo"),
        (["--checkpoint", "a", "b", "--checkpoint=c"], "--checkpoint is given twice; keep one"),
        (["--checkpoint", "a", "-k5", "--k", "6"], "--k is given twice; keep one"),
        (["--check", "a"], "unknown option --check; did you mean --checkpoint?"),
    ],
)
def test_parser__refuses_unknown_and_repeated_options(words, sentence, capsys):
    parser = Parser()
    parser.add_argument("--checkpoint", nargs="+", required=True)
    parser.add_argument("-k", "--k", type=int)
    assert error(capsys, parser.parse_args, words).endswith(f"error: {sentence}")


def test_parser__accepts_what_looks_like_options():
    parser = Parser()
    parser.add_argument("--mean", nargs="+", type=float)
    parser.add_argument("--option", action="append")
    parser.add_argument("names", nargs="*")
    words = ["--mean", "-0.5", "-3.4e38", "--option", "a", "--option", "--b c", "--", "--mean"]
    options = parser.parse_args(words)
    assert options.mean == [-0.5, -3.4e38]
    assert options.option == ["a", "--b c"]
    assert options.names == ["--mean"]


def test_scripts__use_this_parser():
    folder = Path(__file__).parents[2] / "extra_scripts"
    texts = [path.read_text() for path in folder.rglob("*.py")]
    assert len([text for text in texts if re.search(r"\bParser\(", text)]) > 8
    assert not [text for text in texts if "argparse.ArgumentParser(" in text]


FIRST_WORDS = """
import sys
from pirl_plugin.cli import run
try:
    run(sys.argv[1:])
except SystemExit:
    assert "torch" not in sys.modules
    raise
"""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("knn", "--data"),
        ("embed", "--data"),
        ("linear", "--train"),
        ("finetune", "--val"),
        ("prepare", "IN"),
        ("export", "--checkpoint"),
    ],
)
def test_commands__refuse_missing_paths_before_torch_is_imported(command, name):
    words = ["gone", "out"] if name == "IN" else [name, "gone"]
    ended = run_python("-c", FIRST_WORDS, command, *words, check=False)
    assert ended.stderr.endswith(f"error: argument {name}: gone does not exist\n")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("gone", "gone does not exist"), ("/", "/ is a folder, not a list of images. Omit")],
)
def test_train__refuses_wrong_paths_before_torch_is_imported(path, sentence):
    script = FIRST_WORDS.replace("SystemExit", "ValueError")
    config = ["config=pretrain/pirl/quick_jigsaw", "+config/pirl/datasets=filelist"]
    words = ["train", *config, f"config.DATA.TRAIN.DATA_PATHS=[{path}]"]
    ended = run_python("-c", script, *words, check=False)
    assert f"config.DATA.TRAIN.DATA_PATHS: {sentence}" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "pass --data DIR, or both --train PATH and --val PATH"),
        (["--train", "."], "pass --data DIR, or both --train PATH and --val PATH"),
        (["--data", ".", "--val", "."], "pass --data DIR, or both --train PATH and --val PATH"),
    ],
)
def test_labeled_data__is_one_folder_or_two_paths(words, sentence, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").touch()
    monkeypatch.chdir(tmp_path)
    words = ["finetune", "--checkpoint", "a.csv", *words]
    assert f"error: {sentence}" in error(capsys, run, words)


def test_device__is_refused_in_few_words_before_torch_is_imported():
    ended = run_python("-c", FIRST_WORDS, "linear", "--device", "gpu", check=False)
    assert ended.stderr.endswith("--device: gpu: expected cpu, cuda, cuda:N, or auto\n")
