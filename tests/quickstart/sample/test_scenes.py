"""The sample data set: what is written, that it is the same each time, and what is refused."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.quickstart.sample import scenes
from pirl_plugin.quickstart.sample.scenes import SCENES, sample_scene, write_sample_dataset

SMALL = {"num_train": 20, "num_val": 10, "size": 24}


def digest(folder):
    files = sorted(path for path in folder.rglob("*.jpg"))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_write_sample_dataset__layout_and_balance(tmp_path):
    out = tmp_path / "deep" / "set"
    write_sample_dataset(out, num_train=23, num_val=10, size=24)
    for split, total in (("train", 23), ("val", 10)):
        counts = {
            folder.name: len(list(folder.glob("*.jpg"))) for folder in (out / split).iterdir()
        }
        assert sorted(counts) == sorted(SCENES)
        assert sum(counts.values()) == total
        assert max(counts.values()) - min(counts.values()) <= 1
    with Image.open(out / "train" / "sea" / "00000.jpg") as photo:
        assert (photo.size, photo.mode, photo.format) == ((24, 24), "RGB", "JPEG")
    assert [path.name for path in out.parent.iterdir()] == ["set"]  # no draft is left


def test_write_sample_dataset__same_seed_same_files(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_sample_dataset(tmp_path / name, seed=seed, **SMALL)
    first, second, other = (digest(tmp_path / name) for name in "abc")
    assert first == second
    assert not set(first.values()) & set(other.values())
    assert len(set(first.values())) == 30  # no two images alike, in train and val together


def test_write_sample_dataset__a_larger_set_begins_with_the_smaller(tmp_path):
    write_sample_dataset(tmp_path / "small", **SMALL)
    write_sample_dataset(tmp_path / "large", **{**SMALL, "num_train": 30})
    assert digest(tmp_path / "small").items() <= digest(tmp_path / "large").items()


def test_write_sample_dataset__keeps_what_is_there(tmp_path, monkeypatch):
    out = tmp_path / "set"
    write_sample_dataset(out, **SMALL)
    before = digest(out)
    with monkeypatch.context() as patch:
        patch.setattr(scenes, "sample_scene", lambda *_: pytest.fail("drew it again"))
        write_sample_dataset(out, **SMALL)
    assert digest(out) == before
    write_sample_dataset(out, seed=1, **SMALL)  # other parameters: made again
    assert not set(before.values()) & set(digest(out).values())


def test_write_sample_dataset__a_killed_run_leaves_nothing(tmp_path, monkeypatch):
    out, drawn = tmp_path / "set", []

    def stops(name, rng, size):
        drawn.append(name)
        if len(drawn) == 12:
            raise KeyboardInterrupt
        return sample_scene(name, rng, size)

    with monkeypatch.context() as patch:
        patch.setattr(scenes, "sample_scene", stops)
        with pytest.raises(KeyboardInterrupt):
            write_sample_dataset(out, **SMALL)
    assert not out.exists()
    write_sample_dataset(out, **SMALL)
    assert len(digest(out)) == 30


def test_write_sample_dataset__leaves_a_strangers_folder_alone(tmp_path):
    mine = tmp_path / "photos" / "mine.jpg"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(FileExistsError, match=r"is not a sample data set.*give another one"):
        write_sample_dataset(mine.parent, **SMALL)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_train": 9}, "num_train is 9, expected at least 10"),
        ({"num_val": 0}, "num_val is 0, expected at least 10"),
        ({"size": 8}, "size is 8 pixels, expected at least 16"),
        ({"seed": -1}, "seed is -1, expected"),
    ],
)
def test_write_sample_dataset__refuses(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        write_sample_dataset(tmp_path / "set", **{**SMALL, **changes})


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("size", [16, 33, 96])
def test_sample_scene__is_a_picture_with_contrast(name, size):
    photos = [sample_scene(name, np.random.default_rng(seed), size) for seed in range(6)]
    for photo in photos:
        assert photo.shape == (size, size, 3)
        assert photo.dtype == np.uint8
        assert photo.std() > 3


def test_sample_scene__mean_colour_does_not_give_the_class_away():
    # nearest class mean on the mean colour of 30 + 30 photos a class; chance is 10 %
    means = np.stack(
        [
            [
                sample_scene(name, np.random.default_rng([7, number]), 32).mean(axis=(0, 1))
                for number in range(60)
            ]
            for name in SCENES
        ]
    )  # (10, 60, 3)
    centres = means[:, :30].mean(axis=1)
    far = np.linalg.norm(means[:, 30:, None] - centres, axis=-1)  # (10, 30, 10)
    right = far.argmin(axis=-1) == np.arange(len(SCENES))[:, None]
    assert right.mean() < 0.3
