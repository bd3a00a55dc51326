"""Names in the table are registered with VISSL once and overwrite nothing."""

import importlib
from pkgutil import resolve_name

from pirl_plugin.vissl.import_hook.finder import _finish
from pirl_plugin.vissl.import_hook.table import PARTS


def test_registration__is_complete_and_idempotent(subtests):
    for module in PARTS:
        with subtests.test(module=module):
            host = importlib.import_module(module)
            where, parts = PARTS[module]
            before = dict(resolve_name(where))
            _finish(host)
            assert resolve_name(where) == before
            assert {
                name: resolve_name(part) for name, part in parts.items()
            }.items() <= before.items()


def test_registration__extends_vissls_lists_of_names():
    import vissl.data
    from vissl.data.ssl_transforms import ssl_transforms_wrapper as wrapper

    whole = wrapper.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    assert set(PARTS["vissl.data.ssl_transforms"][1]) <= set(whole)
    assert set(PARTS["vissl.data"][1]) <= vissl.data.DATA_SOURCES_WITH_SUBSET_SUPPORT
