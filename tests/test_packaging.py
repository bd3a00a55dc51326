"""The requirements in ``pyproject.toml`` agree with the imports."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {  # distribution -> module, where the names differ
    "hydra-core": "hydra",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
# VISSL's wheel includes classy_vision. Detectron2 is built from source; HEIC files are rare.
NOT_DECLARED = {"vissl", "classy_vision", "detectron2", "pillow_heif", "pirl_plugin"}
NOT_DECLARED |= {"triton", "typing_extensions"}  # installed with torch
NOT_DECLARED |= {"threadpoolctl"}  # installed with scikit-learn
LIBRARY = [
    path
    for path in (ROOT / "pirl_plugin").rglob("*.py")
    if not {"vissl", "quickstart"} & set(path.parts[:-1])
]


def module_of(requirement):
    name = re.match(r"[\w-]+", requirement)[0]
    return MODULES.get(name, name.replace("-", "_"))


def declared(*extras):
    """Return the modules of the base installation and of extras, including nested extras."""
    requirements = list(PROJECT["dependencies"])
    for extra in extras:
        for requirement in EXTRAS[extra]:
            if included := re.match(r"pirl-plugin\[(.+)\]", requirement):
                extras_included = included[1].split(",")
                requirements += [r for e in extras_included for r in EXTRAS[e]]
            else:
                requirements.append(requirement)
    return {module_of(requirement) for requirement in requirements}


def imports(path, whole_file=True):
    """Return third-party modules that a file imports, anywhere or only at the top."""
    tree = ast.parse(path.read_text())
    siblings = {file.stem for file in path.parent.glob("*.py")}
    modules = set()
    for node in ast.walk(tree) if whole_file else tree.body:
        if isinstance(node, ast.Import):
            modules.update(name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.partition(".")[0])
    return modules - sys.stdlib_module_names - siblings - NOT_DECLARED


def test_imports__are_declared(subtests):
    for folder, extras in (
        ("pirl_plugin", ["vissl", "report", "timm", "hf", "tiff"]),
        ("extra_scripts/benchmark", ["vissl", "claims"]),
        ("extra_scripts/claims", ["claims"]),
        ("extra_scripts/detection", ["vissl"]),
        ("extra_scripts/paper", ["vissl", "report"]),
        ("docs/examples", ["lightning"]),
        ("docs/pictures", ["report"]),
    ):
        with subtests.test(folder=folder):
            files = list((ROOT / folder).rglob("*.py"))
            assert files
            found = {module: path for path in files for module in imports(path)}
            assert found.keys() <= declared(*extras), found


def test_library__needs_only_base_installation():
    assert len(LIBRARY) > 30
    for path in LIBRARY:
        assert imports(path, whole_file=False) <= declared(), path


def test_requirements__are_used():
    """Used by this package or by VISSL."""
    files = [ROOT / "pirl_plugin", ROOT / "extra_scripts", ROOT / "docs/examples"]
    for host in ("vissl", "classy_vision"):
        files += importlib.util.find_spec(host).submodule_search_locations
    code = "\n".join(path.read_text() for folder in files for path in Path(folder).rglob("*.py"))
    for module in declared("vissl", "report", "timm", "hf", "tiff", "lightning", "claims"):
        assert re.search(rf"^\s*(import|from) {module}\b", code, re.M), module


def test_constraints__name_every_requirement():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {module_of(line) for line in lines if not line.startswith("#")}
    assert pinned == declared("test", "claims", "docs", "onnx")


def test_workflows__pin_actions_by_hash():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for action in re.findall(r"uses: (.+)", path.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), (path.name, action)


def test_supported_pythons__are_the_same_everywhere():
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    oldest, newest = classifiers[0], classifiers[-1]
    assert PROJECT["requires-python"] == f">={oldest}"
    matrix = re.search(r"python: (\[.*\])", (ROOT / ".github/workflows/tests.yml").read_text())
    assert ast.literal_eval(matrix[1]) == classifiers
    for page in ("README.md", "docs/getting_started.md", "CHANGELOG.md", "constraints.txt"):
        assert f"Python {oldest} to {newest}" in (ROOT / page).read_text(), page


def test_oldest_torch__is_the_one_that_is_tested():
    (torch,) = [need for need in PROJECT["dependencies"] if need.startswith("torch>=")]
    oldest = torch.removeprefix("torch>=")
    workflow = (ROOT / ".github/workflows/tests.yml").read_text()
    assert f"torch=={oldest}.*" in workflow
    for page in ("docs/getting_started.md", "CHANGELOG.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"torch {oldest} or newer" in text, page


def test_setup__takes_a_newer_python_and_refuses_an_older_one(tmp_path):
    """A newer Python than tested gets a warning, and then this script's next step."""
    printed = {}
    for version in ("3.10", "3.11", "3.14", "3.15"):
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = --version ]; then echo Python {version}.1; exit; fi\n'
            'if [ "$1" = -m ]; then echo created; exit 9; fi\n'
            f'exec {sys.executable} -c "import sys; sys.version_info = '
            f'({version.replace(".", ", ")}, 1); $(echo "$2" | cut -d";" -f2)"\n'
        )
        python.chmod(0o755)
        environment = {
            **os.environ,
            "PIRL_PYTHON": str(python),
            "PIRL_VENV": str(tmp_path / "venv"),
        }
        script = ROOT / "extra_scripts" / "setup_env.sh"
        result = subprocess.run(
            ["bash", script], env=environment, capture_output=True, text=True, check=False
        )
        printed[version] = (result.returncode, result.stdout + result.stderr)
    assert printed["3.10"][0] == 1
    assert "3.11 to 3.14" in printed["3.10"][1]
    for version in ("3.11", "3.14", "3.15"):
        status, text = printed[version]
        assert status == 9
        assert "created" in text
        assert ("Tested are Python 3.11 to 3.14" in text) == (version == "3.15")
