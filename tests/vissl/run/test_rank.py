"""What a rank tells its launcher, and what the launcher then shows."""

import multiprocessing
import re
import signal

import pytest

from pirl_plugin.vissl.run.launch import _end, _received
from pirl_plugin.vissl.run.rank import Failure, _send

LOST = Failure("rank 0: another rank ended", is_consequence=True)
CAUSE = Failure("rank 1: the cause", is_consequence=False)
SECOND = Failure("rank 0: the second cause", is_consequence=False)


@pytest.mark.parametrize(
    ("failures", "code", "sentence"),
    [
        ([LOST, CAUSE, SECOND], 1, "rank 1: the cause"),
        ([LOST], 1, "rank 0: another rank ended"),
        ([LOST], -signal.SIGKILL, "pirl_plugin: rank 3 was ended by SIGKILL.*"),
        ([], 1, "pirl_plugin: rank 3 ended with exit status 1"),
        ([], -signal.SIGABRT, "pirl_plugin: rank 3 was ended by SIGABRT"),
    ],
)
def test_launcher__shows_first_cause(failures, code, sentence):
    with pytest.raises(SystemExit) as ended:
        _end(code, 3, failures)
    assert re.fullmatch(sentence, ended.value.code)


def test_launcher__receives_failures_in_order_of_time():
    reader, writer = multiprocessing.Pipe(duplex=False)
    for failure in (CAUSE, LOST):
        _send(writer, *failure)
    assert _received(reader) == [CAUSE, LOST]  # also if a killed rank leaves the pipe open
    reader.close()
    _send(writer, *CAUSE)  # the launcher was killed
