"""The line of progress."""

import io
import os
import subprocess
import sys

import pytest

from pirl_plugin.utils.console import ProgressLine, put, show_page, shows_page


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line__is_rewritten_in_a_terminal_and_ended_before_another(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    line = ProgressLine()
    line.write("step 1")
    line.write("step 2")
    line.say("a warning")
    line.close()
    assert sys.stdout.getvalue() == "\r\033[Kstep 1\r\033[Kstep 2\na warning\n"


def test_line__is_a_line_of_a_log(capsys):
    line = ProgressLine()
    line.write("step 1")
    line.say("a warning")
    assert capsys.readouterr().out == "step 1\na warning\n"


@pytest.mark.parametrize(("before", "page"), [(None, True), ("log", False), ("page", True)])
def test_show_page__leaves_the_log_to_who_asks_for_it(before, page, monkeypatch):
    monkeypatch.setenv("PIRL_PLUGIN_CONSOLE", "")
    monkeypatch.delenv("PIRL_PLUGIN_CONSOLE")
    if before is not None:
        monkeypatch.setenv("PIRL_PLUGIN_CONSOLE", before)
    show_page()
    assert shows_page() == page


def test_put__goes_on_where_nobody_reads(tmp_path):
    """As after ``| tee log`` has ended: the run ends as it would have, and so does Python."""
    code = (
        "import sys; from pirl_plugin.utils.console import put; sys.stdin.read();"
        "put('one\\n'); put('two\\n'); print('three')"
    )
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(writer)
        os.close(reader)
        _, said = process.communicate()
    assert process.returncode == 0, said
    assert said.count("The console cannot be written to ([Errno 32] Broken pipe)") == 1


def test_put__escapes_what_the_stream_cannot_encode():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    put("τ = 0.07, \udcff.jpg, é\n", stream)
    assert stream.buffer.getvalue() == b"\\u03c4 = 0.07, \\udcff.jpg, \xe9\n"
