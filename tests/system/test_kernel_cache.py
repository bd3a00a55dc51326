"""A kernel whose cache on disk is damaged."""

import importlib

KERNEL = """
from pirl_plugin.system.kernel_cache import CachedKernel

@CachedKernel
def double(x):
    return 2 * x
"""


def test_kernel__with_a_damaged_cache_is_compiled_with_one_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "kernel_of_a_test.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("kernel_of_a_test")
    assert module.double(2) == 4
    (index,) = (tmp_path / "__pycache__").glob("*.nbi")
    index.write_bytes(b"")
    module = importlib.reload(module)
    assert [module.double(x) for x in (3, 4)] == [6, 8]
    (record,) = caplog.records
    assert "its cache cannot be used (EOFError(" in record.getMessage()
