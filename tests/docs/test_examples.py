"""The documentation's examples run, README's lines included."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import pirl_plugin as pirl
from pirl_plugin import cli
from pirl_plugin.quickstart.sample import write_sample_dataset
from tests.helpers.programs import run_python

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def photos(tmp_path_factory, make_image):
    """Create a folder with ``photos``: 32 48-px images, one batch in the plain loop."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "photos").mkdir()
    for i in range(32):
        make_image(folder / "photos" / f"{i}.jpg", seed=i)
    return folder


def run_here(name, folder, monkeypatch, *arguments):
    """Run an example in this process, in a folder, on the CPU."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)  # Lightning only counts devices
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert pirl.load_trunk("trunk.torch").network_config.size == 64


def test_plain_pytorch__runs_silently_on_less_than_a_batch(tmp_path, make_image):
    (tmp_path / "photos").mkdir()
    for i in range(3):
        make_image(tmp_path / "photos" / f"{i}.jpg", seed=i)
    program = (EXAMPLES / "plain_pytorch.py").read_text()
    assert "epochs = 40\n" in program
    (tmp_path / "short.py").write_text(program.replace("epochs = 40\n", "epochs = 2\n"))
    result = run_python("-W", "error", "short.py", folder=tmp_path)
    (line,) = result.stderr.splitlines()
    assert line.startswith("PIRL uses its default loss")
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert all("effective_rank" in line for line in lines)
    assert pirl.load_trunk(tmp_path / "trunk.torch").network_config.size == 64


@pytest.mark.slow
def test_plain_pytorch__learns(tmp_path, monkeypatch):
    """By kNN, the trunk beats its untrained copy; the file records the image size."""
    write_sample_dataset(tmp_path / "scenes", num_train=600, num_val=300)
    (tmp_path / "photos").symlink_to(tmp_path / "scenes" / "train")
    run_here("plain_pytorch.py", tmp_path, monkeypatch)
    command = ["knn", "--checkpoint", "trunk.torch", "--data", "scenes", "--out", "."]
    cli.run(command)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["knn_top1"] > results["untrained_top1"] + 10


def test_readme__runs_as_it_stands():
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    values = {}
    exec(block, values)
    assert values["loss"].isfinite()
    assert values["features"].shape == (64, 512)
    assert values["readable"].all()
    loop = (EXAMPLES / "plain_pytorch.py").read_text().split('"""\n\n', 1)[1]
    assert f"has {len([line for line in loop.splitlines() if line])} lines" in readme
    assert len(readme.splitlines()) <= 180


RECIPE = (
    r"JigsawViews\(\s*image_size=64, patches_crop_size=96, patch_size=24, image_scale=\(0.2, 1.0\)",
    r"WideResNet\(10, width=0.5\)",
    r"PIRL\(trunk, data\)",
    r"SGD\([\w.]+\(\), lr=0.03, momentum=0.9, weight_decay=1e-4\)",
    r"CosineAnnealingLR\(",
    r"fill_bank\(",
    r"\.update\(\)",
    r"measure_bank\([\w.]+\.bank\.rows, [\w.]*labels\)",
)


def test_examples__share_one_recipe(subtests):
    """The site's front page includes the first example."""
    for name in ("plain_pytorch.py", "ddp.py", "lightning_module.py", "tutorial"):
        with subtests.test(name=name):
            if name == "tutorial":
                cells = json.loads((ROOT / "docs/tutorial.ipynb").read_text())["cells"]
                program = "\n".join("".join(cell["source"]) for cell in cells)
            else:
                program = (EXAMPLES / name).read_text()
            for line in RECIPE:
                assert re.search(line, program), line


@pytest.mark.slow
def test_ddp__runs_on_two_processes(photos):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = [EXAMPLES / "ddp.py", "photos", "--epochs=1", "--batch-size=8"]
    result = run_python(*launcher, *example, folder=photos)
    assert "effective_rank" in result.stdout
    assert "strides" not in result.stderr  # a warning that every step copies the gradients


@pytest.mark.slow
def test_lightning__runs(photos, monkeypatch):
    run_here("lightning_module.py", photos, monkeypatch, "photos", "--epochs=2", "--batch-size=16")
