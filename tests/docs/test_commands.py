"""Every command, config, key, file and link of the README and the documentation exists.

Commands that take seconds on a CPU are run as they are written, in a folder that has the files that
they name.
"""

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import configs
from pirl_plugin import cli
from pirl_plugin.settings import config_root
from tests.helpers.configs import compose
from tests.helpers.export_files import small_trunk, vissl_checkpoint
from tests.helpers.host_runs import run

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts),
]
CONFIGS = config_root() / "config"
VISSLS_CONFIGS = Path(configs.__path__[0]) / "config"
VISSLS_SCRIPT = "tools/run_distributed_engines.py"
ANY = "…"  # in a command: and so on


def expanded(block):
    """The block with the values of the variables that it sets, without the lines that set them."""
    values = dict(re.findall(r"^([A-Z]+)=(\S+)$", block, re.M))
    block = re.sub(r"^[A-Z]+=\S+$", "", block, flags=re.M)
    return re.sub(r"\$([A-Z]+)\b", lambda name: values.get(name[1], name[0]), block)


def commands():
    """Each line of each bash block, as a list of words."""
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S):
            if block.count('"') % 2 == 0 and "python -c" in block:
                continue  # a program of several lines
            for line in expanded(block.replace("\\\n", " ")).splitlines():
                words = [word for word in shlex.split(line, comments=True) if word != ANY]
                if words:
                    yield pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")


COMMANDS = list(commands())
OURS = [c for c in COMMANDS if c.values[0][0] == "pirl-plugin" and c.values[0][1] != "train"]
TRAIN = [c for c in COMMANDS if c.values[0][:2] == ["pirl-plugin", "train"]]
TRAIN += [c for c in COMMANDS if c.values[0][:2] == ["python", VISSLS_SCRIPT]]
SCRIPTS = [c for c in COMMANDS if any(word.startswith("extra_scripts/") for word in c.values[0])]


def is_quick(words):
    return words[1] in ("configs", "prepare", "knn", "export") or "--dry-run" in words


QUICK = [c for c in OURS if is_quick(c.values[0])]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A ResNet-18, which all formats have, and a narrow ResNet-10, which is quick."""
    folder = tmp_path_factory.mktemp("checkpoints")
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), folder / "export")
    torch.save(vissl_checkpoint(small_trunk(10, width=0.125)), folder / "knn")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", QUICK)
def test_command__runs(words, here, checkpoints, image_folder, monkeypatch):
    if "timm" in words:
        pytest.importorskip("timm", reason="timm is not installed")
    given = words[2:3] if words[1] == "export" else words
    for word in given:  # what a reader has there
        top = word.partition("/")[0]
        if top in ("DIR", "IMAGENET", "IMAGENETTE", "LABELLED") and not Path(top).exists():
            Path(top).symlink_to(image_folder)
        if word in ("IN", "CHECKPOINT") or word.endswith((".pth", ".torch")):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).symlink_to(checkpoints / words[1])
    assert status(words) in (None, 0)


def status(words):
    """What the command ends with: None, a number, or a sentence that says what is wrong."""
    try:
        return cli.run(words[1:])
    except SystemExit as ended:
        return ended.code


@pytest.mark.slow
def test_getting_started__trains_and_measures(here, image_folder):
    """The page's first commands, and what the guide reads from the run's log."""
    (here / "DIR").symlink_to(image_folder)
    page = (ROOT / "docs" / "getting_started.md").read_text()
    train, measure = (
        shlex.split(block.replace("\\\n", " "))
        for block in re.findall(r"```bash\n(pirl-plugin (?:train|knn)[^`]*)```", page)
    )
    run(*train[2:], command=[sys.executable, "-m", "pirl_plugin", "train"], folder=here)
    cli.run(measure[1:])
    guide = (ROOT / "docs" / "guides" / "watching.md").read_text()
    (lines,) = (b for b in re.findall(r"```python\n(.*?)```", guide, re.S) if "stdout.json" in b)
    printed = []
    exec(lines, {"json": json, "print": lambda *values: printed.append(values)})
    assert printed[0][0] == 0
    assert 0 <= printed[0][1] <= 100


class ParsedError(Exception):
    """The arguments are right; nothing is run."""


@pytest.fixture
def only_parse(monkeypatch):
    for name in ("parse_args", "parse_intermixed_args"):
        original = getattr(argparse.ArgumentParser, name)

        def parse(self, *arguments, original=original, **options):
            original(self, *arguments, **options)
            raise ParsedError

        monkeypatch.setattr(argparse.ArgumentParser, name, parse)


@pytest.mark.parametrize("words", OURS)
def test_command__takes_these_options(words, only_parse):
    assert words[1] in cli.COMMANDS
    with pytest.raises(ParsedError):
        cli.run(words[1:])


@pytest.mark.parametrize("words", TRAIN)
def test_training__composes(words):
    overrides = [word for word in words[2:] if word != "--dry-run"]
    if overrides[0] == "--max-restarts":
        overrides = overrides[2:]
    assert compose(*overrides).LOSS.name


@pytest.mark.parametrize("words", SCRIPTS)
def test_script__exists(words):
    (script,) = (word for word in words if word.startswith("extra_scripts/"))
    assert (ROOT / script).is_file()


def test_blocks__are_found():
    assert len(OURS) > 10
    assert len(TRAIN) > 5
    assert len(SCRIPTS) > 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names__exist(page):
    text = page.read_text()
    for name in re.findall(r"config=((?:pretrain|benchmark)/pirl/\w+)", text):
        assert any((folder / f"{name}.yaml").is_file() for folder in (CONFIGS, VISSLS_CONFIGS)), (
            name
        )
    for group, name in re.findall(r"\+config/pirl/(\w+)=(\w*)", text):
        assert (CONFIGS / "pirl" / group).is_dir(), group
        assert not name or name.isupper() or (CONFIGS / f"pirl/{group}/{name}.yaml").is_file(), name
    for name in re.findall(r"pirl-plugin` ?(?=`)|pirl-plugin ([a-z]+)", text):
        assert not name or name in cli.COMMANDS, name
    for path in re.findall(r"`((?:tests|docs|extra_scripts|configs|pirl_plugin)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links__resolve(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target


def test_keys__exist():
    composed = [compose(f"config={n}") for n in ("pretrain/pirl/jigsaw_8node",)]
    composed.append(compose("config=benchmark/pirl/linear_imagenet1k"))
    composed.append(compose("config=pretrain/pirl/jigsaw_8node", "+config/pirl/models=timm"))
    composed.append(compose("config=benchmark/pirl/ensemble_imagenet1k"))
    composed.append(compose("config=pretrain/pirl/quick_jigsaw"))
    for page in PAGES:
        for key in re.findall(r"(?<![\w+])config\.([A-Z]\w*(?:\.\w+)+)", page.read_text()):
            assert any(has(config, key.split(".")) for config in composed), (page.name, key)


def has(config, names):
    for name in names:
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def test_readme__is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
