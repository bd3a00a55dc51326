"""Imports only go up the list of layers, and only some packages import VISSL."""

import ast
import graphlib
import re
from pathlib import Path

import pirl_plugin

PACKAGE = Path(__file__).parents[1] / "pirl_plugin"
LAYERS = ["system", "method", "views", "images", "models", "checkpoints", "evaluation",
          "quickstart", "vissl", "cli", "__main__", "__init__"]  # fmt: skip
LAYER = {name: number for number, name in enumerate(LAYERS)}
HOSTS = {"vissl", "classy_vision", "detectron2"}


def imports(text):
    """Return the modules that a module imports, and the names it imports from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offences(part, text):
    """Return the imports in a file that break the rules for its part."""
    for module in imports(text):
        top, _, below = module.partition(".")
        below = pirl_plugin._MODULES.get(below, module).removeprefix("pirl_plugin.")
        name = below.partition(".")[0]
        if top in HOSTS and part != "vissl":
            yield f"{part} -> a host"
        elif top != "pirl_plugin" or name in ("pirl_plugin", "__version__"):
            continue
        elif part not in ("__init__", "cli"):
            if LAYER[name] > LAYER[part] or (name == "vissl" and part != "vissl"):
                yield f"{part} -> {name}"


def test_imports__go_up_the_list_of_layers():
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 50
    found = set()
    for path in files:
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.update(offences(part, path.read_text()))
    assert found == set()


def test_library__names_arguments_and_no_options():
    """Messages name an argument in backquotes; the command line shows the option."""
    found = []
    for room in ("method", "views", "images", "models", "checkpoints"):
        for path in (PACKAGE / room).glob("*.py"):
            if not path.stem.endswith("_command"):
                found += re.findall(r"(?<![-\w`])--[a-z][\w-]*", path.read_text())
    assert found == []


def import_graph():
    """Map modules to the package modules that they import, also inside functions."""
    files = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    return {
        module: {name for name in imports(path.read_text()) if name in files}
        - {module, "pirl_plugin"}
        for module, path in files.items()
    }


def test_imports__have_no_cycles():
    graphlib.TopologicalSorter(import_graph()).prepare()  # raises CycleError


def folder_of(module):
    """Return a module's folder; a loose file in the package or in ``vissl`` counts as a folder."""
    depth = 3 if module.startswith("pirl_plugin.vissl.") else 2
    return ".".join(module.split(".")[:depth])


def test_imports__have_no_cycles_among_folders():
    folders = {}
    for module, imported in import_graph().items():
        folder = folder_of(module)
        others = {folder_of(name) for name in imported} - {folder}
        folders.setdefault(folder, set()).update(others)
    # The packages' own files: public names, and the folder of folders.
    for package in ("pirl_plugin", "pirl_plugin.vissl"):
        for others in folders.values():
            others.discard(package)
        folders.pop(package)
    graphlib.TopologicalSorter(folders).prepare()  # raises CycleError
    assert len(folders) <= 22
