"""How a mistake is answered."""

import pytest

from pirl_plugin.vissl.checks.refusal import ConfigurationError, refuse, traceback_wanted


def test_refuse__ends_in_one_line(monkeypatch):
    for name in ("PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match=r"^pirl_plugin: found this; expected that$"):
        refuse("found this;\n  expected that")
    monkeypatch.setenv("PIRL_PLUGIN_TRACEBACK", "1")
    with pytest.raises(ConfigurationError) as raised:
        refuse("found this", KeyError("why"))
    assert isinstance(raised.value.__cause__, KeyError)


def test_tracebacks__are_shown_on_request(monkeypatch):
    for name in ("PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv("PIRL_PLUGIN_TRACEBACK", raising=False)
        assert not traceback_wanted()
        monkeypatch.setenv(name, "1")
        assert traceback_wanted()
        monkeypatch.setenv(name, "0")
        assert not traceback_wanted()
