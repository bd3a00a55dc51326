"""The layers of docs/architecture.md: who may import whom, and no circle among the modules."""

import ast
import re
from pathlib import Path

PACKAGE = Path("pirl_plugin")
LISTED = re.search(
    r"^pirl_plugin/\n(.*?)^configs/", Path("docs/architecture.md").read_text(), re.M | re.S
)
LAYERS = re.findall(r"^  (\w+)/", LISTED[1], re.M)
FILES = {
    ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports(path):
    """Modules of ours that a file imports, in functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in FILES)
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("pirl_plugin"):
            below = [f"{node.module}.{name.name}" for name in node.names]
            yield from ([name for name in below if name in FILES] or [node.module])


GRAPH = {module: set(imports(path)) - {module} for module, path in FILES.items()}


def layer(module):
    """Its number in the list; None of the package's own modules, such as the command line's."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if parts[1:2] and parts[1] in LAYERS else None


def test_layers__are_the_packages():
    assert sorted(LAYERS) == sorted(
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()
    )


def test_layers__import_downwards_alone():
    upwards = [
        (module, imported)
        for module, found in GRAPH.items()
        for imported in found
        if None not in (layer(module), layer(imported)) and layer(imported) > layer(module)
    ]
    assert upwards == []


def test_modules__import_each_other_in_no_circle():
    # The package itself is left out: its public names load on first use.
    left = {module: set(found) for module, found in GRAPH.items() if module != "pirl_plugin"}
    while free := [module for module, found in left.items() if not found & left.keys()]:
        for module in free:
            del left[module]
    assert {module: sorted(found & left.keys()) for module, found in left.items()} == {}


def test_adapters__are_named_after_the_host():
    """What subclasses the host's base classes, itself or by way of an adapter."""
    adapters = {"pirl_plugin.vissl.bases", "pirl_plugin.vissl.hooks.base"}
    found = {module for module, imported in GRAPH.items() if imported & adapters}
    assert len(found) > 10
    assert [module for module in found if ".vissl_" not in module] == []
