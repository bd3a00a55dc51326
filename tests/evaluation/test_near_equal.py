"""Held-out images that look nearly the same as a training image: bursts, and separate images."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.evaluation.near_equal import thumbnails_of
from pirl_plugin.models.resnet import WideResNet

FACT = "test images look nearly the same as some training image"


def save_bursts(folder, num_scenes, num_frames):
    """Write frames of smooth random scenes: crops that move by up to 5 %, with noise."""
    rng = np.random.default_rng(0)
    for scene in range(num_scenes):
        coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        large = Image.fromarray(coarse).resize((84, 84), Image.Resampling.BICUBIC)
        for frame in range(num_frames):
            left, top = rng.integers(0, 5, 2)
            pixels = np.asarray(large.crop((left, top, left + 80, top + 80)), np.float64)
            pixels = (pixels + rng.normal(0, 4, pixels.shape)).clip(0, 255).astype(np.uint8)
            path = folder / "ab"[scene % 2] / f"{scene}_{frame}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    file = tmp_path_factory.mktemp("trunk") / "trunk.torch"
    save_trunk(WideResNet(10, 0.25), file)
    return file


@pytest.mark.parametrize(("num_scenes", "num_frames", "speaks"), [(12, 5, True), (60, 1, False)])
def test_near_equal_images__are_counted(
    checkpoint, tmp_path, capsys, caplog, num_scenes, num_frames, speaks
):
    data = save_bursts(tmp_path / "data", num_scenes, num_frames)
    (data / "a" / "broken.png").write_bytes(b"no image")
    words = ["knn", "--checkpoint", str(checkpoint), "--data", str(data), "--size", "32"]
    run([*words, "--no-untrained", "--layer", "last", "--out", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "results.json").read_text())["near_equal"]
    out = capsys.readouterr().out
    if speaks:
        assert found["images"] > 0.9 * found["of"]
        assert f"{found['images']} of {found['of']} {FACT}" in out
        assert "--pattern" in out
    else:
        assert found["images"] == 0
        assert FACT not in out
    assert caplog.text.count("broken.png") == 1


def test_groups__need_no_comparison(checkpoint, tmp_path, capsys, caplog):
    data = save_bursts(tmp_path / "data", 12, 5)
    words = ["linear", "--checkpoint", str(checkpoint), "--data", str(data), "--size", "32"]
    words += ["--layer", "last", "--out", str(tmp_path / "out")]
    run([*words, "--pattern", r"./(?P<group>\d+)_\d\.png"])
    assert FACT not in capsys.readouterr().out
    assert "paths from the column" not in caplog.text  # in the command's own lists
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["near_equal"] is None
    names = {}
    for split in ("train", "val"):
        lines = (tmp_path / "out" / f"{split}.jsonl").read_text().splitlines()
        paths = [json.loads(line)["path"].rpartition("/")[2] for line in lines]
        names[split] = {path.partition("_")[0] for path in paths}
    assert not names["train"] & names["val"]


def test_blank_images__look_like_no_other():
    """Rounding left noise, which normalizing made as large as other images' content."""
    assert thumbnails_of(torch.full((1, 3, 224, 224), -1.7)).norm() < 0.01
