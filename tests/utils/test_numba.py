"""Kernels compile where nothing can be cached, and the log says what that costs."""

import logging
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
