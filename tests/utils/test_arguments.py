"""Arguments of all commands: refused as they are parsed, with what was expected."""

import sys
from argparse import SUPPRESS, ArgumentParser
from pathlib import Path

import pytest

from pirl_plugin.__main__ import main
from pirl_plugin.benchmark.command import BENCHMARKS
from pirl_plugin.cli import run


def said_of(words, monkeypatch, capsys):
    """Last line on stderr of a refused command."""
    monkeypatch.setattr(sys, "argv", ["pirl-plugin", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code not in (0, None)
    return capsys.readouterr().err.splitlines()[-1]


COMMANDS = {
    "knn": ["knn", "--checkpoint", "a.torch"],
    "invariance": ["invariance", "--checkpoint", "a.torch", "--data", "."],
    "results": ["results", "a"],
    "quickstart": ["quickstart"],
    "sweep": ["sweep", "lambda", "--data", "."],
    "detection": ["detection", "--config", "voc07_pirl", "--weights", "a.torch"],
    "prepare": ["prepare", "."],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_out__that_is_a_file_is_refused_before_work(command, tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    file.write_text("kept")
    for out in (file, file / "below"):
        said = said_of([*COMMANDS[command], *option(command), out], monkeypatch, capsys)
        assert f"expected a folder to write to, and '{file}' is a file" in said
    assert file.read_text() == "kept"


def option(command):
    return [] if command == "prepare" else ["--out"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux: its /proc takes no files")
@pytest.mark.parametrize("command", COMMANDS)
def test_out__that_even_root_cannot_write_to_is_refused_before_work(command, monkeypatch, capsys):
    words = [*COMMANDS[command], *option(command), "/proc/x"]
    assert "and '/proc' cannot be written to: " in said_of(words, monkeypatch, capsys)


@pytest.mark.parametrize("command", ["sweep", "detection"])
def test_out__by_default_is_refused_too(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").touch()
    monkeypatch.chdir(tmp_path)
    said = said_of(COMMANDS[command], monkeypatch, capsys)
    assert f"argument --out: runs/{command}" in said
    assert f"expected a folder to write to, and '{tmp_path}/runs' is a file" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["knn", "--checkpoint", "a", "--k", "0"], "--k: 0: expected a whole number of at least 1"),
        (["knn", "--checkpoint", "a", "--temperature", "nan"], "nan: expected a number above 0"),
        (["knn", "--checkpoint", "a", "--device", "foo"], "foo: expected cpu, cuda or cuda:N"),
        (["knn", "--checkpoint", "a", "--device", "cuda:99"], "cuda:99: expected a device that is"),
        (["prepare", "a", "b", "--shards", "0"], "--shards: 0: expected a whole number of at"),
        (["prepare", "a", "b", "--quality", "100"], "100: expected a whole number from 1 to 95"),
        (["quickstart", "--seed", "4294967296"], "expected a whole number from 0 to 4294967295"),
        (["sweep", "lambda", "--data", ".", "--slurm", ""], "expected the name of a partition"),
        (["benchmark", "pipeline", "--rounds", "0"], "--rounds: 0: expected a whole number of"),
        (["benchmark", "loss", "--dtype", "foo"], "invalid choice: 'foo'"),
        (["benchmark", "loss", "--json", "."], "expected a file to write, and '.' is a folder"),
    ],
)
def test_value__that_cannot_be_used_is_refused_before_work(words, expected, monkeypatch, capsys):
    assert expected in said_of(words, monkeypatch, capsys)


@pytest.mark.parametrize("command", [*COMMANDS, *(f"benchmark {name}" for name in BENCHMARKS)])
def test_help__shows_defaults(command, monkeypatch, capsys):
    """Of each option that has one, and of no other."""
    parsers = []
    monkeypatch.setattr(ArgumentParser, "exit", lambda parser: parsers.append(parser) or sys.exit())
    with pytest.raises(SystemExit):
        run([*command.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "default: None" not in shown
    assert "``" not in shown
    assert "default: False" not in shown
    for action in parsers[0]._actions:
        if action.nargs == 0 or action.default in (None, SUPPRESS, []):
            continue
        if command == "claims" and action.nargs:  # these say it in words
            continue
        several = isinstance(action.default, list)
        default = " ".join(map(str, action.default)) if several else action.default
        assert f"(default: {default})" in shown, action
