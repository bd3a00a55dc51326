"""What a rank tells its launcher, and what the launcher then shows."""

import multiprocessing
import re
import signal

import pytest

from pirl_plugin.vissl.run.launch import Failure, _end, _send

LOST = Failure("rank 0: another rank ended", is_consequence=True)
CAUSE = Failure("rank 1: the cause", is_consequence=False)
SECOND = Failure("rank 0: the second cause", is_consequence=False)


def sent(*failures):
    """Return a pipe with failures; a killed rank leaves it open."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    for failure in failures:
        _send(writer, failure)
    return reader, writer


@pytest.mark.parametrize(
    ("failures", "code", "sentence"),
    [
        ([LOST, CAUSE, SECOND], 1, "rank 1: the cause"),
        ([SECOND, CAUSE], 1, "rank 0: the second cause"),
        ([LOST], 1, "rank 0: another rank ended"),
        ([LOST], -signal.SIGKILL, "pirl_plugin: rank 3 was ended by SIGKILL.*"),
        ([], 1, "pirl_plugin: rank 3 ended with exit status 1"),
        ([], -signal.SIGABRT, "pirl_plugin: rank 3 was ended by SIGABRT"),
    ],
)
def test_launcher__shows_first_cause(failures, code, sentence):
    reader, _writer = sent(*failures)
    with pytest.raises(SystemExit) as ended:
        _end(code, 3, reader)
    assert re.fullmatch(sentence, ended.value.code)


def test_rank__ignores_killed_launcher():
    reader, writer = sent()
    reader.close()
    _send(writer, CAUSE)
