"""A data set of views in a plain DataLoader: draws, epochs, broken files."""

import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from pirl_plugin.images.collator import collate_views
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.pretext import RotationTask
from pirl_plugin.views.random import image_generator

SMALL = {"image_size": 24, "patches_crop_size": 30, "patch_size": 8}


@pytest.fixture
def images(image_folder):
    return ImageDataset(image_folder / "train", JigsawViews(**SMALL), seed=3)


def joined(batches):
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def test_dataset__draws_are_keyed_on_seed_epoch_and_row(images):
    images.set_epoch(2)
    sample = images[4]
    expected = images.views(images.source[4][0], image_generator(3, 2, 4))
    assert (sample["label"], sample["data_valid"]) == (4, True)
    assert torch.equal(sample["patches"], expected["patches"])
    images.set_epoch(1)
    assert not torch.equal(images[4]["patches"], expected["patches"])


def test_dataset__running_workers_take_the_next_epoch(images):
    """Workers that outlive an epoch draw what a process alone draws."""
    loader = DataLoader(
        images, batch_size=8, collate_fn=collate_views, num_workers=2, persistent_workers=True,
        multiprocessing_context="fork",
    )  # fmt: skip
    alone = DataLoader(images, batch_size=5, collate_fn=collate_views)
    for epoch in (0, 1):
        images.set_epoch(epoch)
        shared, single = joined(list(loader)), joined(list(alone))
        for name in ("images", "patches", "label", "data_valid"):
            assert torch.equal(shared[name], single[name]), (epoch, name)


def test_dataset__a_broken_file_is_masked(tmp_path, make_image):
    for row in range(3):
        make_image(tmp_path / f"{row}.jpg", seed=row)
    (tmp_path / "1.jpg").write_bytes(b"broken")
    images = ImageDataset(tmp_path, JigsawViews(**SMALL))
    assert [images[row]["label"] for row in range(3)] == [0, -1, 2]  # for other collate functions
    assert ImageDataset(tmp_path, RotationTask(image_size=24))[1]["label"] == -1
    batch = next(iter(DataLoader(images, batch_size=3, collate_fn=collate_views)))
    assert batch["label"].tolist() == [0, -1, 2]
    assert batch["data_valid"].tolist() == [True, False, True]
    assert not batch["images"][1].any()
    assert not batch["patches"][9:18].any()
    assert images.source.num_unreadable == 1


def test_dataset__label_of_a_pretext_task_is_the_tasks(image_folder):
    images = ImageDataset(image_folder / "train", RotationTask(image_size=16), seed=1)
    batch = next(iter(DataLoader(images, batch_size=20, collate_fn=collate_views)))
    assert set(batch["label"].tolist()) == {0, 1, 2, 3}


def test_dataset__a_list_of_files_that_are_not_there(tmp_path, make_image):
    listed = tmp_path / "list.txt"
    listed.write_text("train/a.jpg\ntrain/b.jpg\n")
    with pytest.raises(
        FileNotFoundError, match=r"none of 2 files .* the list's own folder.*; correct the list"
    ):
        ImageDataset(listed, JigsawViews(**SMALL))
    (tmp_path / "train").mkdir()
    make_image(tmp_path / "train" / "b.jpg", seed=0)
    assert len(ImageDataset(listed, JigsawViews(**SMALL))) == 2


def test_dataset__looks_for_files_of_the_whole_list(tmp_path, make_image):
    """Of 15 files it looked at the first eight."""
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{number}.jpg\n" for number in range(15)))
    for number in range(8, 15):
        make_image(tmp_path / f"{number}.jpg", seed=0)
    assert len(ImageDataset(listed, JigsawViews(**SMALL))) == 15


def test_dataset__epochs_and_rows_that_are_none(images):
    """They ended a loader's workers, with a sentence about an index."""
    with pytest.raises(ValueError, match=r"epoch = -1: expected a whole number in \[0, "):
        images.set_epoch(-1)
    assert images.epoch == 0
    for epoch in ("1", 0.5):
        with pytest.raises(ValueError, match=rf"epoch = {epoch!r}: expected a whole number"):
            images.set_epoch(epoch)
    for row in (-1, len(images)):
        with pytest.raises(IndexError, match=f"row {row} of {len(images)} images: expected 0 to "):
            images[row]
    with pytest.raises(IndexError, match=f"row '0' of {len(images)} images"):
        images["0"]
    assert images.source.num_unreadable == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"root_or_source": ["a.jpg", "b.jpg"]}, "is a list: expected a folder, a file that lists"),
        ({"root_or_source": 5}, "is a int: expected a folder"),
        ({"views": JigsawViews}, "expected what makes views; give it as JigsawViews"),
        ({"views": None}, "views = None: expected what makes views; give it as JigsawViews"),
        ({"seed": "a"}, "seed = 'a': expected a whole number"),
    ],
)
def test_dataset__refuses_arguments_that_would_fail_at_the_first_image(
    arguments, says, image_folder
):
    given = {"root_or_source": image_folder / "train", "views": JigsawViews(**SMALL)} | arguments
    with pytest.raises(ValueError, match=says):
        ImageDataset(**given)


class PrivateMemory(ImageDataset):
    """What the reading process shares with no other, MB, after each sample."""

    def __getitem__(self, row):
        assert super().__getitem__(row)["data_valid"]
        rollup = Path("/proc/self/smaps_rollup").read_text()
        return sum(int(size) for size in re.findall(r"Private_\w+: +(\d+) kB", rollup)) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")
def test_dataset__workers_keep_no_copy_of_a_million_paths(tmp_path, make_image):
    name, memory = "images" * 10 + "/image.jpg", {}
    (tmp_path / name).parent.mkdir()
    make_image(tmp_path / name, seed=0)
    for count in (100, 1_000_000):
        listed = tmp_path / f"{count}.txt"
        listed.write_text(f"{name}\n" * count)
        images = PrivateMemory(listed, JigsawViews(**SMALL))
        loader = DataLoader(
            images, batch_size=None, sampler=range(0, count, count // 100), num_workers=1,
            multiprocessing_context="forkserver",
        )  # fmt: skip
        memory[count] = list(loader)[-1]
    table = 1_000_000 * (8 + len(name)) / 2**20  # MB
    assert memory[1_000_000] < memory[100] + table / 8
