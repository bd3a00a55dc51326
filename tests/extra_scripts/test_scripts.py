"""All scripts: help, starting by path from another folder, and imports."""

import ast
import importlib.machinery
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "extra_scripts"
FILES = sorted(FOLDER.glob("*/*.py"))
WITHOUT_OPTIONS = {"claims/report.py", "detection/trial.py"}  # take a folder only


RUN_ALL = """
import pathlib, runpy, sys
for path in sys.argv[1:]:
    sys.path[0] = str(pathlib.Path(path).parent)
    sys.argv = [path, "--help"]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        print(path, ended.code)
"""


def test_help__of_each_script(tmp_path):
    """One process, because each would import torch."""
    scripts = [
        str(path)
        for path in FILES
        if '__name__ == "__main__"' in path.read_text()
        and str(path.relative_to(FOLDER)) not in WITHOUT_OPTIONS
    ]
    assert len(scripts) > 10
    result = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *scripts],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    for script in scripts:
        assert f"usage: {Path(script).name}" in result.stdout
        assert f"{script} 0\n" in result.stdout


def imports(path):
    """The top-level names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


def test_imports__are_of_the_own_folder():
    """In tests all folders are on the path; a user's script has only its own."""
    for path in FILES:
        others = {file.stem for file in FILES if file.parent != path.parent}
        assert not {*imports(path)} & {*others, "extra_scripts"}, path


def test_names__are_of_one_file_each():
    names = [path.stem for path in FILES]
    assert len(names) == len(set(names))
    elsewhere = [entry for entry in sys.path if not entry.startswith(str(FOLDER))]
    for name in names:
        assert importlib.machinery.PathFinder.find_spec(name, elsewhere) is None, name
