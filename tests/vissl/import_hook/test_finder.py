"""The import hook costs nothing without VISSL and works wherever VISSL is imported."""

import importlib
import inspect
import sys
from pkgutil import resolve_name

import pytest

from pirl_plugin.vissl.import_hook import finder, table
from pirl_plugin.vissl.import_hook.finder import _execute
from pirl_plugin.vissl.import_hook.table import PARTS
from tests.helpers.programs import run_python

INSTALL = "from pirl_plugin.vissl.import_hook import finder; finder.install()"


def python(code, **environment):
    return run_python("-c", code, **environment).stdout.strip()


def test_finder__loads_only_modules_already_imported_at_start_up():
    code = "import sys; b = set(sys.modules); {}; print(*sorted(set(sys.modules) - b))"
    loaded = python(code.format(INSTALL))
    assert set(loaded.split()) <= {
        "pirl_plugin",
        "pirl_plugin.images",
        "pirl_plugin.images.names",
        "pirl_plugin.vissl",
        "pirl_plugin.vissl.import_hook",
        "pirl_plugin.vissl.import_hook.finder",
        "pirl_plugin.vissl.import_hook.table",
    }


def test_install__twice_adds_one_finder():
    assert finder.install() is finder.install()
    assert sum(isinstance(f, finder.ImportHook) for f in sys.meta_path) == 1


@pytest.mark.parametrize("steps", [table.BEFORE, table.AFTER])
def test_table__names_existing_functions(steps):
    for module, names in steps.items():
        for name in names:
            assert callable(resolve_name(name)), f"{module}: {name}"


def test_table__replaces_each_host_function_once(subtests):
    for module, functions in table.REPLACED.items():
        host = importlib.import_module(module)
        for name, path in functions.items():
            with subtests.test(module=module, name=name):
                class_name, _, function = name.rpartition(".")
                owner = getattr(host, class_name) if class_name else host
                bound = inspect.getattr_static(owner, function)
                assert bound.func is resolve_name(path)
                assert bound.keywords["original"].__module__ != resolve_name(path).__module__


def test_registration__is_complete_and_idempotent(subtests):
    for module in PARTS:
        with subtests.test(module=module):
            host = importlib.import_module(module)
            where, parts = PARTS[module]
            before = dict(resolve_name(where))
            _execute(id, host)
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
