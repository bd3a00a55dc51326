"""The line of progress."""

import io
import sys

import pytest

from pirl_plugin.utils.console import ProgressLine, show_page, shows_page


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
