"""The recipes of docs/guides/data.md, run as they are printed on tiny trees, twice in a row."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

DOCS = Path(__file__).parents[2] / "docs" / "guides"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def script(name):
    (found,) = [text for text in blocks("data.md", "python") if f"python {name}" in text]
    return found


def run(code, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


def test_places205__links_each_image_below_its_class_twice_in_a_row(tmp_path):
    lists = {"train": {"a/abbey/1.jpg": 0, "z/zoo/2.jpg": 204}, "val": {"a/abbey/3.jpg": 0}}
    source = tmp_path / "source"
    (source / "trainvalsplit_places205").mkdir(parents=True)
    for split, labels in lists.items():
        for path in labels:
            image(source / "images256" / path)
        text = "".join(f"{path} {label}\n" for path, label in labels.items())
        (source / "trainvalsplit_places205" / f"{split}_places205.csv").write_text(text)
    for _ in range(2):
        done = run(script("places205.py"), "source", "out/places205", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    out = tmp_path / "out" / "places205"
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.jpg"))
    assert found == ["train/000/a_abbey_1.jpg", "train/204/z_zoo_2.jpg", "val/000/a_abbey_3.jpg"]
    assert all(path.exists() for path in out.rglob("*.jpg"))  # relative SOURCE, absolute links


def test_yfcc1m__lists_images_that_exist_wherever_it_is_read_from(tmp_path):
    for i in range(7):
        image(tmp_path / "YFCC" / str(i % 2) / f"{i}.jpg")
    for _ in range(2):
        done = run(script("yfcc1m.py"), "YFCC", "DIR/yfcc1m/train.npy", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "7 of 7 images" in done.stdout
    paths = np.load(tmp_path / "DIR" / "yfcc1m" / "train.npy")
    assert len(set(paths)) == 7
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in paths)
    empty = run(script("yfcc1m.py"), "nowhere", "train.npy", cwd=tmp_path)
    assert empty.returncode == 1
    assert "there are no .jpg files below" in empty.stderr


def test_yfcc1m__draws_at_most_a_million(tmp_path):
    for i in range(5):
        image(tmp_path / "YFCC" / f"{i}.jpg")
    code = script("yfcc1m.py").replace("1_000_000", "3")
    done = run(code, "YFCC", "train.npy", cwd=tmp_path)
    assert "3 of 5 images" in done.stdout
    assert len(set(np.load(tmp_path / "train.npy"))) == 3


def test_one_percent__names_each_images_folder_twice_in_a_row(tmp_path):
    (command,) = [text for text in blocks("data.md", "bash") if text.startswith("sed ")]
    (tmp_path / "DIR" / "imagenet1k" / "train").mkdir(parents=True)
    (tmp_path / "1percent.txt").write_text("n01440764_10026.JPEG\nn01443537_2.JPEG\n")
    for _ in range(2):
        subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True)
    listed = (tmp_path / "DIR" / "imagenet1k" / "train" / "1percent.txt").read_text()
    assert listed == "n01440764/n01440764_10026.JPEG\nn01443537/n01443537_2.JPEG\n"


def commands():
    """The commands of the YFCC-1M page that take overrides, with ``$W`` in its place."""
    text = "\n".join(blocks("yfcc1m.md", "bash")).replace("\\\n", " ")
    weights = re.search(r"^W=(\S+)$", text, re.MULTILINE)[1]
    lines = [shlex.split(line.replace("$W", weights)) for line in text.splitlines()]
    return [line for line in lines if any(word.startswith("config=") for word in line)]


@pytest.mark.parametrize("command", commands(), ids=lambda words: words[-1].partition("=")[2])
def test_yfcc1m_page__commands_compose(command):
    start = next(i for i, word in enumerate(command) if word.startswith("config="))
    config = convert_to_attrdict(compose_hydra_configuration(command[start:]), dump_config=False)[1]
    assert config.CHECKPOINT.DIR.startswith("runs/")
    if "pretrain" in command[start]:
        assert config.DATA.TRAIN.DATASET_NAMES == ["yfcc1m_filelist"]
    else:
        assert "yfcc1m/pretrain" in config.MODEL.WEIGHTS_INIT.PARAMS_FILE


def test_yfcc1m_page__has_pre_training_and_four_benchmarks():
    assert len(commands()) == 7
