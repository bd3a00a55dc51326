"""All scripts: help, start by path from another folder, and imports."""

import ast
import importlib.machinery
import runpy
import sys
from pathlib import Path

from tests.helpers.forks import fork, wait_for

FOLDER = Path(__file__).parents[2] / "extra_scripts"
FILES = sorted(FOLDER.glob("*/*.py"))
WITHOUT_OPTIONS = {"claims/report.py", "detection/trial.py"}  # require a folder


SCRIPTS = [
    path
    for path in FILES
    if '__name__ == "__main__"' in path.read_text()
    and str(path.relative_to(FOLDER)) not in WITHOUT_OPTIONS
]


def show_help_of_each():
    """Show each script's help, importing modules afresh and only from its own folder."""
    elsewhere = [entry for entry in sys.path if not entry.startswith(str(FOLDER))]
    for script in SCRIPTS:
        for file in FILES:
            sys.modules.pop(file.stem, None)
        sys.path[:] = [str(script.parent), *elsewhere]
        sys.argv = [str(script), "--help"]
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            print(script, ended.code)


def test_help__is_shown_by_each_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(SCRIPTS) > 10
    console = tmp_path / "console"
    with console.open("w") as log:
        assert wait_for(fork(show_help_of_each, log, log)) == 0, console.read_text()
    printed = console.read_text()
    for script in SCRIPTS:
        assert f"usage: {script.name}" in printed
        assert f"{script} 0\n" in printed


def imports(path):
    """Return the top-level names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


def test_imports__are_from_own_folder():
    """In tests, all folders are on the path; a user's script sees only its own."""
    for path in FILES:
        others = {file.stem for file in FILES if file.parent != path.parent}
        assert not {*imports(path)} & {*others, "extra_scripts"}, path


def test_module_names__are_unique():
    names = [path.stem for path in FILES]
    assert len(names) == len(set(names))
    elsewhere = [entry for entry in sys.path if not entry.startswith(str(FOLDER))]
    for name in names:
        assert importlib.machinery.PathFinder.find_spec(name, elsewhere) is None, name
