"""Imports go up the list of layers only, and only vissl/ and detection/ import a host."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path("pirl_plugin")
LAYERS = [
    {"files", "distributed", "kernel_cache", "failures", "settings", "console", "processes",
     "arguments", "ranges", "index_range"},
    {"cpu_kernels", "triton_kernels"}, {"estimators"}, {"scores"},
    {"bank", "sharded_bank", "negatives"}, {"loss"},
    {"views"}, {"images"}, {"models"}, {"checkpoints"},
    {"evaluation"}, {"detection"}, {"vissl"}, {"quickstart"}, {"benchmark"},
    {"cli", "__main__", "__init__"},
]  # fmt: skip
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
HOSTS = {"vissl", "classy_vision", "detectron2"}
ALLOWED = {"benchmark -> a host"}  # beside VISSL's own, in one process


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def test_imports__go_up_the_list_of_layers():
    offenders = set()
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in imports(path):
            top, _, below = module.partition(".")
            name = below.partition(".")[0]
            if top in HOSTS and part not in ("vissl", "detection"):
                offenders.add(f"{part} -> a host")
            elif top == "pirl_plugin" and name and part not in ("__init__", "cli"):
                if LAYER[name] > LAYER[part] or (name == "vissl" and part != "vissl"):
                    offenders.add(f"{part} -> {name}")
    assert offenders - ALLOWED == set()


def test_import__of_the_package_imports_no_torch():
    code = "import pirl_plugin, pirl_plugin.cli, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
