"""Wheels and editable installs, put into an empty environment and taken out again."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PTH = "pirl_plugin_autoload.pth"


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


@pytest.fixture
def empty_environment(tmp_path):
    """A virtual environment without packages; gives its Python and its site-packages."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    return tmp_path / "venv" / "bin" / "python", site_packages


def test_wheel__holds_the_door_and_the_configs(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert PTH in names
    assert "pirl_plugin/configs/config/pretrain/pirl/jigsaw_8node.yaml" in names
    assert "pirl_plugin/evaluation/report.html.j2" in names
    assert "pirl_plugin/py.typed" in names
    in_clone = {
        f"pirl_plugin/configs/{p.relative_to(ROOT / 'configs').as_posix()}"
        for p in (ROOT / "configs").rglob("*.yaml")
    }
    assert in_clone == {n for n in names if n.startswith("pirl_plugin/configs/")}
    tops = {name.split("/")[0] for name in names}
    assert tops == {"pirl_plugin", PTH, next(t for t in tops if t.endswith(".dist-info"))}


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_install__opens_the_door_and_uninstall_leaves_nothing(editable, wheel, empty_environment):
    python, site_packages = empty_environment
    source = ["--editable", str(ROOT)] if editable else [str(wheel)]
    before = set(site_packages.iterdir())
    pip("--python", str(python), "install", "--no-deps", *source)
    assert (site_packages / PTH).is_file()
    # A package called vissl stands in for the host: its import must make way for the door.
    (site_packages / "vissl.py").write_text("")
    code = (
        "import sys; names = lambda: [type(f).__name__ for f in sys.meta_path];"
        "print('PIRLDoorbell' in names(), 'pirl_plugin' in sys.modules);"
        "import vissl; print('Door' in names(), 'pirl_plugin' in sys.modules);"
        "from pirl_plugin.host.search_path import config_root;"
        "print((config_root() / 'config/pretrain/pirl/jigsaw_8node.yaml').is_file())"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.split() == ["True", "False", "True", "True", "True"]
    (site_packages / "vissl.py").unlink()
    pip("--python", str(python), "uninstall", "--yes", "pirl-plugin")
    # pip takes the folder away with its last file
    left = set(site_packages.iterdir()) if site_packages.exists() else set()
    assert {p for p in left - before if p.name != "__pycache__"} == set()


def test_doorbell__costs_a_process_that_never_imports_the_host_under_2_ms():
    doorbell = (ROOT / "pirl_plugin/host/doorbell.py").read_text()
    code = (
        "import time, sys; line = {!r}; start = time.perf_counter(); exec(line);"
        "print(1000 * (time.perf_counter() - start))"
    ).format(f"exec({doorbell!r}, {{}})")
    costs = []
    for _ in range(5):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        costs.append(float(run.stdout))
    assert min(costs) < 2
