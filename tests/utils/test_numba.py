"""Kernels compile where nothing can be cached, as the log says; a cached one is never stale."""

import importlib.util
import logging
import resource
import signal
import sys
from types import SimpleNamespace

import numba
import numpy as np

from pirl_plugin.utils.numba import compiled


def test_compiled__without_a_place_for_the_cache_says_so(monkeypatch, caplog):
    njit = numba.njit

    def no_cache(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function 'double': no locator available")
        return njit(**options)

    monkeypatch.setattr("pirl_plugin.utils.numba.numba", SimpleNamespace(njit=no_cache))

    def double(values):
        return 2 * values

    with caplog.at_level(logging.WARNING):
        function = compiled(double)
    assert function(np.arange(3)).tolist() == [0, 2, 4]
    assert "double is compiled again in each process" in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_compiled__is_compiled_again_when_a_constant_of_another_file_changes(tmp_path, monkeypatch):
    file = tmp_path / "kernel.py"
    file.write_text(
        "from columns_of_a_test import COLUMN\n"
        "from pirl_plugin.utils.numba import compiled\n"
        "@compiled\n"
        "def pick(values):\n"
        "    return values[COLUMN]\n"
    )

    def pick(column):
        """The value in this column, and whether the kernel was in the cache on disk."""
        monkeypatch.setitem(sys.modules, "columns_of_a_test", SimpleNamespace(COLUMN=column))
        spec = importlib.util.spec_from_file_location("kernel", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        value = module.pick(np.array([10, 11, 12]))
        return value, bool(module.pick.stats.cache_hits)

    assert [pick(1), pick(1), pick(2), pick(2)] == [
        (11, False), (11, True), (12, False), (12, True)
    ]  # fmt: skip


def test_compiled__where_the_cache_cannot_be_written_goes_on(tmp_path, monkeypatch, caplog):
    """A full disk ended the run, at the first call."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def halve(values):
        return values / 2

    function = compiled(halve)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with caplog.at_level(logging.WARNING):
            halved = function(np.arange(3.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert halved.tolist() == [0, 0.5, 1]
    assert caplog.text.count("halve is compiled again in each process") == 1
