"""The import hook costs nothing without VISSL and works wherever VISSL is imported."""

import importlib
import inspect
import os
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from pirl_plugin.vissl.import_hook import finder, table

WITHOUT_BOOTSTRAP = (
    "sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'PIRLBootstrap'];"
)
INSTALL = "from pirl_plugin.vissl.import_hook import finder; finder.install()"


def python(code, **environment):
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import__loads_only_the_package_itself():
    loaded = python("import sys, pirl_plugin; print(*sorted(sys.modules))")
    assert "torch" not in loaded.split()
    assert [m for m in loaded.split() if m.split(".")[0] == "pirl_plugin"] == ["pirl_plugin"]


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


def test_bootstrap__installs_hook_on_first_host_import():
    code = (
        "import sys; from pathlib import Path; import pirl_plugin;"
        + WITHOUT_BOOTSTRAP
        + "code = Path(pirl_plugin.__file__).parent / 'vissl/import_hook/bootstrap.py';"
        "exec(code.read_text(), {});"
        "kinds = lambda: [type(f).__name__ for f in sys.meta_path];"
        "print('PIRLBootstrap' in kinds(), 'ImportHook' in kinds());"
        "import vissl;"
        "print('PIRLBootstrap' in kinds(), 'ImportHook' in kinds())"
    )
    assert python(code).split() == ["True", "False", "False", "True"]
    assert python(code, PIRL_PLUGIN_AUTOLOAD="0").split() == ["False"] * 4


def test_bootstrap__imports_host_without_the_package():
    code = (
        "import sys;" + WITHOUT_BOOTSTRAP + "from pathlib import Path; import pirl_plugin;"
        "code = Path(pirl_plugin.__file__).parent / 'vissl/import_hook/bootstrap.py';"
        "exec(code.read_text(), {});"
        "sys.modules['pirl_plugin.vissl'] = None;"
        "import vissl; print(vissl.__version__)"
    )
    assert python(code) == "0.1.6"


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
