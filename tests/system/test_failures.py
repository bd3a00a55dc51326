"""Command-line errors are one sentence; their type decides whether a traceback is kept."""

import pickle
from pathlib import Path

import pytest
from omegaconf.errors import ConfigKeyError

from pirl_plugin.system.arguments import option_of
from pirl_plugin.system.failures import (
    MissingFile,
    MissingPackage,
    Refused,
    in_one_sentence,
    is_refusal,
    sentence,
)


def test_refusal__prints_only_a_sentence(capsys, subtests):
    for kind in (Refused, MissingFile, MissingPackage, ConfigKeyError):
        with subtests.test(kind=kind):
            with pytest.raises(SystemExit) as ended, in_one_sentence():
                raise kind("a = 2: at most 1")
            assert ended.value.code == "pirl_plugin: a = 2: at most 1"


def test_missing_file__prints_only_a_sentence():
    with pytest.raises(SystemExit) as ended, in_one_sentence():
        Path("gone").read_text()
    assert ended.value.code == "pirl_plugin: No such file or directory: 'gone'"


def test_other_error__saves_traceback(tmp_path, subtests):
    for error in (
        RuntimeError("layer needs 3 channels"),
        ValueError("a: expected b"),
        PermissionError(13, "Permission denied", "c"),
        KeyError("d"),
    ):
        with subtests.test(error=repr(error)):
            with pytest.raises(SystemExit) as ended, in_one_sentence(tmp_path):
                raise error
            assert str(ended.value.code).endswith(f"(traceback in {tmp_path / 'failure.txt'})")
            text = (tmp_path / "failure.txt").read_text()
            assert "Traceback" in text
            assert type(error).__name__ in text


def test_error_in_loader_process__names_shared_memory():
    cause = "unable to allocate. Original Traceback\nRuntimeError: no space left"
    advice = "no space left. If /dev/shm is full, enlarge it, as with docker run --shm-size 8g, or"
    assert sentence(RuntimeError(cause)).startswith(advice)
    assert sentence(RuntimeError("layer needs 3 channels")) == "layer needs 3 channels"


def test_refusal__names_options_for_arguments():
    words = "pass `label_column`, `prefix`, `timm_options` or `a b`"
    with pytest.raises(SystemExit) as ended, in_one_sentence(spell=option_of):
        raise Refused(words)
    sentence = "pass --label-column, --trunk, --timm-option or `a b`"
    assert ended.value.code == f"pirl_plugin: {sentence}"
    assert str(Refused(words)) == words


def test_refusal__crosses_processes(subtests):
    """A loader worker sends its exception to the rank."""
    for kind in (Refused, MissingFile, MissingPackage):
        with subtests.test(kind=kind):
            copy = pickle.loads(pickle.dumps(kind("a")))
            assert is_refusal(copy)
            assert str(copy) == "a"
            assert isinstance(copy, ValueError)


def test_sentence__is_last_line_of_loader_worker_error():
    text = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: a = 2: at most 1
"""
    assert sentence(ValueError(text)) == "a = 2: at most 1"
