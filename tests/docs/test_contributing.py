"""Follow the recipes in CONTRIBUTING to the letter, in a copy of the package."""

import ast
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from tests.helpers.programs import run_python

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = {"estimator", "data source", "transform", "photometric option", "head or a trunk", "hook"}


def steps(recipe):
    """Return each Python block in a recipe, with the text before it."""
    (section,) = re.findall(rf"^## Add an? {recipe}\n(.*?)^## ", PAGE, re.M | re.S)
    return re.findall(r"(.*?)```python\n(.*?)```", section, re.S)


def insert_before(path, beginning, block):
    """Insert lines before the only line that equals or starts with a text, indented like it."""
    lines = path.read_text().splitlines(keepends=True)
    equal = [i for i, line in enumerate(lines) if line.strip() == beginning]
    (number,) = equal or [i for i, line in enumerate(lines) if line.strip().startswith(beginning)]
    indentation = re.match(" *", lines[number])[0]
    lines.insert(number, textwrap.indent(block, indentation))
    path.write_text("".join(lines))


def insert_into(path, name, block):
    """Insert entries at the end of a dictionary, list or tuple in the module."""
    lines = path.read_text().splitlines(keepends=True)
    (value,) = [
        node.value
        for node in ast.parse("".join(lines)).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and ast.unparse(getattr(node, "target", None) or node.targets[0]) == name
    ]
    # Columns are in bytes, and the last one is the closing bracket.
    line = lines[value.end_lineno - 1].encode()
    start, end = line[: value.end_col_offset - 1], line[value.end_col_offset - 1 :]
    separator = b", " if start.strip() else b""
    entry = block.strip().rstrip(",").encode()
    lines[value.end_lineno - 1] = (start + separator + entry + end).decode()
    path.write_text("".join(lines))


def follow(recipe, copy):
    """Follow a recipe and return the code in its last block, which uses the result."""
    path = None
    *edits, (_, check) = steps(recipe)
    for words, block in edits:
        if named := re.findall(r"`(pirl_plugin/[\w/]+\.py)`", words):
            path = copy / named[-1]
        if f"Write `{path.relative_to(copy)}`" in words:
            assert not path.exists()
            path.write_text(block)
        elif before := re.findall(r"before\s+`([^`]+)`", words):
            insert_before(path, before[-1], block)
        else:
            (name,) = re.findall(r"to `(\w+)`", words)
            insert_into(path, name, block)
    return check


def test_recipes__are_all_followed():
    assert set(re.findall(r"^## Add an? (.*)$", PAGE, re.M)) == RECIPES


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy the package, follow all recipes, and return the copy and the checks."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "pirl_plugin", folder / "pirl_plugin", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder, {recipe: follow(recipe, folder) for recipe in RECIPES}


@pytest.mark.slow
def test_recipes__work(copy):
    """All in one process, which imports torch and VISSL once."""
    folder, checks = copy
    path = f"import sys; sys.path.insert(0, {str(folder)!r})"
    code = "\n".join([path, *(checks[recipe] for recipe in sorted(RECIPES))])
    run_python("-c", code, folder=folder)


@pytest.mark.slow
def test_recipes__break_no_other_test(copy):
    folder, _ = copy
    for name in ("tests", "docs", "configs", "extra_scripts", "README.md", "CONTRIBUTING.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for words in (["format"], ["check", "--fix"]):  # as documented on the page
        run_python("-m", "ruff", *words, ".", folder=folder)
    modules = ["test_architecture.py", "method/test_estimators.py", "method/test_loss.py"]
    folders = ["views", "images", "models", "vissl/import_hook"]
    tests = [f"tests/{name}" for name in (*modules, *folders)]
    run_python("-m", "pytest", "-q", "-x", *tests, folder=folder)
