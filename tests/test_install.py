"""Install wheels and editable installs into an empty environment, and uninstall them."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "pirl_plugin" / "vissl" / "import_hook" / "bootstrap.py"
BOOTSTRAP = [f"pirl_plugin_autoload.{kind}" for kind in ("pth", "py", "start")]


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    # PYTHONPATH may name a clone, whose egg-info would count as an installation.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env=clean
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


@pytest.fixture
def empty_environment(tmp_path):
    """Create a virtual environment without packages; return its Python and site-packages."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    return tmp_path / "venv" / "bin" / "python", site_packages


def test_wheel__contains_bootstrap_and_configs(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert set(BOOTSTRAP) <= set(names)
    assert "pirl_plugin/configs/config/pretrain/pirl/jigsaw_8node.yaml" in names
    assert "pirl_plugin/evaluation/page.html.j2" in names
    assert "pirl_plugin/py.typed" in names
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "pirl_plugin").rglob("*.py")}
    assert modules <= set(names)
    in_clone = {
        f"pirl_plugin/configs/{p.relative_to(ROOT / 'configs').as_posix()}"
        for p in (ROOT / "configs").rglob("*.yaml")
    }
    assert in_clone == {n for n in names if n.startswith("pirl_plugin/configs/")}
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pirl_plugin", *BOOTSTRAP, next(t for t in tops if t.endswith(".dist-info"))}


@pytest.mark.parametrize(
    "editable", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["wheel", "editable"]
)
def test_install__starts_bootstrap_and_uninstall_leaves_nothing(editable, wheel, empty_environment):
    python, site_packages = empty_environment
    source = ["--editable", str(ROOT)] if editable else [str(wheel)]
    before = set(site_packages.iterdir())
    pip("--python", str(python), "install", "--no-deps", *source)
    assert all((site_packages / name).is_file() for name in BOOTSTRAP)
    # A package named vissl stands in for VISSL; importing it must install the import hook.
    (site_packages / "vissl.py").write_text("")
    code = (
        "import sys; names = lambda: [type(f).__name__ for f in sys.meta_path];"
        "print('PIRLBootstrap' in names(), 'pirl_plugin' in sys.modules);"
        "import vissl; print('ImportHook' in names(), 'pirl_plugin' in sys.modules);"
        "from pirl_plugin.vissl.host_config import config_root;"
        "print((config_root() / 'config/pretrain/pirl/jigsaw_8node.yaml').is_file())"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.split() == ["True", "False", "True", "True", "True"]
    off = {**os.environ, "PIRL_PLUGIN_AUTOLOAD": "0"}
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, env=off)
    assert result.stdout.split() == ["False", "False", "False", "False", "True"]
    (site_packages / "vissl.py").unlink()
    pip("--python", str(python), "uninstall", "--yes", "pirl-plugin")
    # pip removes the folder with its last file
    left = set(site_packages.iterdir()) if site_packages.exists() else set()
    assert {p for p in left - before if p.name != "__pycache__"} == set()


def test_bootstrap__imports_only_modules_already_loaded(tmp_path):
    shutil.copy(SOURCE, tmp_path / "pirl_plugin_autoload.py")
    code = (
        "import sys, os; before = set(sys.modules); import pirl_plugin_autoload;"
        "print(*set(sys.modules) - before)"
    )
    command = [sys.executable, "-S", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout.split() == ["pirl_plugin_autoload"]


def test_bootstrap__runs_only_once():
    namespace = {}
    code = compile(SOURCE.read_text(), "bootstrap", "exec")
    before = list(sys.meta_path)
    finders = [f for f in before if type(f).__name__ not in ("PIRLBootstrap", "ImportHook")]
    try:
        sys.meta_path[:] = finders
        exec(code, namespace)
        namespace["install"]()
        exec(code, {})
        added = [f for f in sys.meta_path if type(f).__name__ == "PIRLBootstrap"]
    finally:
        sys.meta_path[:] = before
    assert len(added) == 1


def test_bootstrap__is_silent_without_package(tmp_path):
    shutil.copy(SOURCE, tmp_path / "pirl_plugin_autoload.py")
    (tmp_path / "vissl.py").write_text("print('the host')")
    code = "import pirl_plugin_autoload, vissl"
    command = [sys.executable, "-S", "-c", code]  # without site-packages, so without the package
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (run.stdout, run.stderr) == ("the host\n", "")


def test_start_up_files__contain_one_import_and_one_callable(wheel):
    archive = zipfile.ZipFile(wheel)
    assert archive.read("pirl_plugin_autoload.pth") == b"import pirl_plugin_autoload\n"
    assert archive.read("pirl_plugin_autoload.start") == b"pirl_plugin_autoload:install\n"
