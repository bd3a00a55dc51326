"""The examples of the documentation run, and the README's loop is the first of them."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision.models
from torch import nn

from pirl_plugin import cli
from pirl_plugin.quickstart.sample import write_sample_dataset

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def photos(tmp_path_factory, make_image):
    """A folder that holds ``photos``, 32 images of 48 px: one batch of the README's."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "photos").mkdir()
    for i in range(32):
        make_image(folder / "photos" / f"{i}.jpg", seed=i)
    return folder


def small_resnet18():
    """A network with 512 features before ``fc``, as resnet18 has them, and batch norm."""
    net = nn.Sequential(nn.Conv2d(3, 512, 8, 8), nn.BatchNorm2d(512), nn.ReLU())
    net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten()])
    net.fc = nn.Linear(512, 1000)
    return net


def run_here(name, folder, monkeypatch, *arguments):
    """Run an example in this process, in a folder, with a small network as resnet18."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torchvision.models, "resnet18", small_resnet18)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)  # Lightning counts only
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert torch.load("trunk.pth", weights_only=True)


def test_plain_pytorch__runs(photos, monkeypatch, capsys):
    run_here("plain_pytorch.py", photos, monkeypatch)
    assert len(capsys.readouterr().out.splitlines()) == 40


def test_plain_pytorch__runs_on_fewer_images_than_a_batch(
    tmp_path, make_image, monkeypatch, capsys
):
    (tmp_path / "photos").mkdir()
    for i in range(3):
        make_image(tmp_path / "photos" / f"{i}.jpg", seed=i)
    run_here("plain_pytorch.py", tmp_path, monkeypatch)
    assert len(capsys.readouterr().out.splitlines()) == 40


@pytest.mark.slow
def test_plain_pytorch__learns(tmp_path, monkeypatch):
    """Its trunk is better by kNN than the same trunk untrained."""
    write_sample_dataset(tmp_path / "scenes", num_train=600, num_val=300)
    (tmp_path / "photos").symlink_to(tmp_path / "scenes" / "train")
    run_here("plain_pytorch.py", tmp_path, monkeypatch)
    command = ["knn", "--checkpoint", "trunk.pth", "--data", "scenes", "--size", "64", "--out", "."]
    cli.run(command)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["knn_top1"] > results["untrained_top1"] + 10


def test_plain_pytorch__is_the_readmes_loop():
    program = (EXAMPLES / "plain_pytorch.py").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert program.split('"""\n\n', 1)[1] == block


def test_first_page__its_lines_run(make_image, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    for i in range(3):
        make_image(tmp_path / "photos" / f"{i}.jpg", seed=i)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block, names)
    assert names["loss"].step == 1
    assert names["loss"].bank.visited.all()


def test_ddp__runs_on_two_processes(photos):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    example = [str(EXAMPLES / "ddp.py"), "photos", "--epochs=1", "--batch-size=8"]
    subprocess.run([*launcher, *example], cwd=photos, check=True, timeout=300)


def test_lightning__runs(photos, monkeypatch):
    run_here("lightning_module.py", photos, monkeypatch, "photos", "--epochs=2", "--batch-size=16")
