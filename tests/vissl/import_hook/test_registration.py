"""Names in the table are in VISSL's registries, once, and overwrite nothing."""

import importlib
from pkgutil import resolve_name

from pirl_plugin.vissl.import_hook.finder import _finish
from pirl_plugin.vissl.import_hook.table import PARTS


def test_parts__are_registered_and_registering_again_changes_nothing(subtests):
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


def test_transforms__get_the_whole_sample_and_sources_take_data_limit():
    import vissl.data
    from vissl.data.ssl_transforms import ssl_transforms_wrapper as wrapper

    whole = wrapper.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    assert set(PARTS["vissl.data.ssl_transforms"][1]) <= set(whole)
    assert set(PARTS["vissl.data"][1]) <= vissl.data.DATA_SOURCES_WITH_SUBSET_SUPPORT
