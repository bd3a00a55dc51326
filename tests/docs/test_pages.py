"""Commands, configs, keys, files and links in README and documentation exist."""

import argparse
import ast
import importlib
import re
import runpy
import shlex
from pathlib import Path

import pytest

from pirl_plugin import cli
from tests.helpers.configs import compose
from tests.helpers.own_parts import write_own_parts

ROOT = Path(__file__).parents[2]
GUIDES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in p.parts]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDES]
CONFIGS = ROOT / "configs" / "config"


def commands():
    """Yield each bash line as a list of words, with ``W=value`` lines expanded."""
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S):
            values = dict(re.findall(r"^([A-Z]+)=(\S+)$", block, re.M))
            block = re.sub(r"^[A-Z]+=\S+$", "", block, flags=re.M).replace("\\\n", " ")
            block = re.sub(
                r"\$([A-Z]+)\b", lambda name, values=values: values.get(name[1], name[0]), block
            )
            for line in block.splitlines():
                if line.count('"') % 2 == 0 and (words := shlex.split(line, comments=True)):
                    yield page, words


COMMANDS = list(commands())


def is_training(words):
    """Whether a line composes a config: our command, torchrun, or a VISSL script."""
    return any(word.startswith("config=") for word in words)


@pytest.mark.slow
def test_training_commands__compose(image_folder, tmp_path, monkeypatch):
    """VISSL's own Hydra entry composes them; words before the first override are the launcher."""
    (tmp_path / "DIR").symlink_to(image_folder)  # own_images counts the images
    write_own_parts(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "shutil.which", lambda program: f"/usr/bin/{program}"
    )  # as if on a cluster with srun
    lines = [words for _, words in COMMANDS if is_training(words)]
    assert len(lines) > 15
    for words in lines:
        overrides = [w for w in words if re.match(r"\+?config[=./]", w)]
        assert compose(*overrides).LOSS.name, words


class ParsedError(Exception):
    """Raised once arguments have been parsed, so nothing runs."""


def test_other_commands__accept_their_options(monkeypatch):
    # Checkpoints and images named on the pages.
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    monkeypatch.setattr("glob.glob", lambda path: [path])
    for name in ("parse_args", "parse_intermixed_args"):
        original = getattr(argparse.ArgumentParser, name)

        def parse(self, *arguments, original=original, **options):
            original(self, *arguments, **options)
            raise ParsedError

        monkeypatch.setattr(argparse.ArgumentParser, name, parse)
    lines = [w for _, w in COMMANDS if w[0] == "pirl-plugin" and w[1] != "train"]
    assert {words[1] for words in lines} == cli.COMMANDS.keys() - {"train", "quickstart"}
    for words in lines:
        with pytest.raises(ParsedError):
            cli.run(words[1:])
    # Scripts are imported by name, as from their own folders.
    scripts = [w[1:] for _, w in COMMANDS if w[0] == "python" and "extra_scripts/" in w[1]]
    scripts = [words for words in scripts if "claims" not in words[0]]
    assert len({script for script, *_ in scripts}) == 8
    for script, *words in scripts:
        with pytest.raises(ParsedError):
            importlib.import_module(Path(script).stem).main(words)


def has(config, names):
    for name in names:
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def test_keys_and_names__exist():
    composed = [
        compose("config=pretrain/pirl/jigsaw_8node"),
        compose("config=pretrain/pirl/quick_jigsaw", "+config/pirl/models=timm"),
        compose("config=pretrain/pirl/quick_jigsaw"),
        compose("config=benchmark/pirl/linear_imagenet1k"),
        compose("config=benchmark/pirl/ensemble_imagenet1k"),
    ]
    for page in PAGES:
        text = page.read_text()
        for key in re.findall(r"(?<![\w+])config\.([A-Z]\w*(?:\.\w+)+)", text):
            assert any(has(config, key.split(".")) for config in composed), (page.name, key)
        for name in re.findall(r"config=((?:pretrain|benchmark)/pirl/\w+)", text):
            assert (CONFIGS / f"{name}.yaml").is_file(), (page.name, name)
        for group, name in re.findall(r"\+config/pirl/(\w+)=([a-z]\w*)", text):
            assert (CONFIGS / f"pirl/{group}/{name}.yaml").is_file(), (page.name, group, name)
        for name in re.findall(r"pirl-plugin ([a-z]+)", text):
            assert name in cli.COMMANDS, (page.name, name)
        folders = r"`((?:tests|docs|extra_scripts|configs|pirl_plugin)/[\w./]+)`"
        for path in re.findall(folders, text):
            is_new = f"Write `{path}`" in text  # a recipe
            assert is_new or (ROOT / path).exists(), (page.name, path)


def test_ends__are_in_the_files_and_tests_that_the_page_names():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| \*(.+?)\* \|.* `(.+?\.py)` \| `(\w+)(?:\.py)?` \|$", text, re.M)
    assert len(rows) == 13
    tests = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    names = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    for row, file, test in rows:
        docstring = ast.get_docstring(ast.parse((ROOT / "pirl_plugin" / file).read_text()))
        assert f"*{row}*" in docstring, file
        assert test in names or any(f"def {test}(" in content for content in tests), test


def test_links__resolve():
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), (page.name, target)


def test_configuration_reference__is_up_to_date():
    script = runpy.run_path(str(ROOT / "docs/make_configuration.py"))
    assert script["page"]() == script["PAGE"].read_text(), "run python docs/make_configuration.py"
