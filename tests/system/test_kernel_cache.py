"""Kernel compilation without a writable cache folder."""

from numba.core import caching

from pirl_plugin.system.kernel_cache import compiled


def test_kernel__compiles_without_cache_folder(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert compiled(lambda x: 2 * x)(2) == 4
