"""Run the programs in data.md, library.md and features.md as printed, on tiny data."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import pirl_plugin as pirl
from pirl_plugin import cli
from tests.helpers.host_tools import write_checkpoint

GUIDES = Path(__file__).parents[2] / "docs/guides"
PAGE = (GUIDES / "data.md").read_text()
LIBRARY = (GUIDES / "library.md").read_text()
FEATURES = (GUIDES / "features.md").read_text()


def block(language, beginning, page=PAGE):
    blocks = re.findall(rf"```{language}\n(.*?)```", page, re.S)
    (found,) = [text for text in blocks if beginning in text]
    return found


def run(name, *arguments, cwd):
    command = [sys.executable, "-c", block("python", f"python {name}"), *arguments]
    subprocess.run(command, cwd=cwd, check=True)


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def test_places205__links_images_by_class_and_can_be_repeated(tmp_path):
    lists = {"train": {"a/abbey/1.jpg": 0, "z/zoo/2.jpg": 204}, "val": {"a/abbey/3.jpg": 0}}
    (tmp_path / "source/trainvalsplit_places205").mkdir(parents=True)
    for split, labels in lists.items():
        for path in labels:
            image(tmp_path / "source/images256" / path)
        text = "".join(f"{path} {label}\n" for path, label in labels.items())
        (tmp_path / f"source/trainvalsplit_places205/{split}_places205.csv").write_text(text)
    for _ in range(2):
        run("places205.py", "source", "out", cwd=tmp_path)
    found = sorted(
        str(path.relative_to(tmp_path / "out")) for path in tmp_path.glob("out/**/*.jpg")
    )
    assert found == ["train/000/a_abbey_1.jpg", "train/204/z_zoo_2.jpg", "val/000/a_abbey_3.jpg"]
    assert all(path.exists() for path in tmp_path.glob("out/**/*.jpg"))


def test_yfcc1m__lists_existing_images(tmp_path):
    for i in range(7):
        image(tmp_path / "YFCC" / str(i % 2) / f"{i}.jpg")
    run("yfcc1m.py", "YFCC", "DIR/yfcc1m/train.npy", cwd=tmp_path)
    paths = np.load(tmp_path / "DIR/yfcc1m/train.npy")
    assert len(set(paths)) == 7
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in paths)


def test_one_percent__lists_each_image_with_folder_and_label(tmp_path):
    (tmp_path / "DIR/imagenet1k/train").mkdir(parents=True)
    (tmp_path / "1percent.txt").write_text("n01440764_10026.JPEG\nn01443537_2.JPEG\n")
    subprocess.run(["bash", "-ec", block("bash", "sed ")], cwd=tmp_path, check=True)
    listed = (tmp_path / "DIR/imagenet1k/train/1percent.txt").read_text()
    assert listed == (
        "n01440764/n01440764_10026.JPEG n01440764\nn01443537/n01443537_2.JPEG n01443537\n"
    )


def test_own_views__may_be_any_image_function(tmp_path, monkeypatch):
    for name in ("1.png", "2.png"):
        image(tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block("python", "two_crops", LIBRARY), names)
    views = names["data"][0]
    assert views["images"].shape == views["transformed"].shape == (3, 64, 64)


def test_components__make_one_training_step(tmp_path, monkeypatch):
    for number in range(4):
        image(tmp_path / "photos" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block("python", "g_transformed", LIBRARY), names)
    assert names["loss"].step == 1
    assert names["loss"].bank.visited.tolist() == [True, True, False, False]


def test_loaded_trunk__is_a_module_from_images_to_features(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pirl.save_trunk(pirl.WideResNet(10, 0.25), "trunk.torch")
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    names = {"pirl": pirl, "torch": torch, "images": images}
    exec(block("python", "load_trunk", LIBRARY), names)
    assert names["features"].shape == (2, 128)
    assert names["model"](names["normalized"]).shape == (2, 3)


def test_transformer__trains_as_printed(tmp_path, monkeypatch):
    for number in range(2):
        image(tmp_path / "photos" / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    names = {"pirl": pirl, "torch": torch}
    exec(block("python", "timm.create_model", LIBRARY), names)
    names["model"](pirl.collate_views([names["data"][0], names["data"][1]])).backward()
    names["optimizer"].step()


def test_sorting__runs_as_printed(image_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    checkpoint = write_checkpoint(tmp_path / "trunk.torch", DEPTH=10, WIDTH_MULTIPLIER=0.25)
    network = f"--checkpoint {checkpoint} --size 32"
    for text in (block("bash", "--sort-into", FEATURES), block("bash", "--nearest", FEATURES)):
        text = text.replace("--timm tf_efficientnet_lite0 --pretrained", network)
        text = text.replace("DIR", str(image_folder)).replace("PHOTOS", str(image_folder / "val"))
        for line in text.splitlines():
            assert cli.run(shlex.split(line)[1:]) == 0
    sorted_images = [path.resolve() for path in (tmp_path / "sorted").glob("*/*")]
    assert sorted(sorted_images) == sorted((image_folder / "val").glob("*/*"))
    assert {path.name for path in (tmp_path / "sorted").iterdir()} <= {"ants", "bees", "run.json"}
    capsys.readouterr()
    exec(block("python", "KMeans", FEATURES), {})
    assert len(capsys.readouterr().out.splitlines()) == 8
