"""Our sources, transforms and collate function in VISSL, and the resuming sampler."""

import pytest
import torch
from PIL import Image

from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.vissl.adapters import images as data_adapters
from pirl_plugin.vissl.adapters.dataset import open_datasets
from pirl_plugin.vissl.adapters.images import PIRLDiskDataset, pirl_collator
from tests.helpers.configs import compose
from tests.helpers.kinds import KINDS, gray, write_kind


def dataset(folder, name):
    entry = [{"name": name}] if name else []
    return PIRLDiskDataset(
        {"SEED_VALUE": 3, "DATA": {"TRAIN": {"TRANSFORMS": entry}}},
        "pirl_disk_folder", str(folder), "TRAIN",
    )  # fmt: skip


def test_batch__combines_source_transform_and_collator(tmp_path, make_image):
    for number in range(2):
        make_image(tmp_path / f"{number}.png", number)
    (tmp_path / "2.png").write_bytes(b"")
    data = dataset(tmp_path, "PIRLJigsaw")
    data.set_epoch(4)
    jigsaw = data_adapters.PIRLJigsaw.from_config({"name": "PIRLJigsaw", "image_size": 32})
    samples = []
    for row in range(3):
        image, valid = data[row]
        samples.append(
            jigsaw({"data": [image], "data_idx": [row], "data_valid": [int(valid)], "label": [row]})
        )
    batch = pirl_collator(samples)
    assert batch["index"][0].tolist() == [0, 1, -1]
    assert batch["data_valid"][0].tolist() == [True, True, False]
    expected = JigsawViews(image_size=32)(data[1][0].pixels, image_generator(3, 4, 1))
    assert torch.equal(batch["images"][0][1], expected["images"])
    assert isinstance(dataset(tmp_path, "")[0][0], Image.Image)
    assert data.source.unreadable_paths() == [str(tmp_path / "2.png")]


SOURCE_OF_KIND = {
    "folder": ("pirl_disk_folder", "train", "val"),
    "text": ("pirl_disk_filelist", "train.txt", "val.txt"),
    "csv": ("pirl_disk_filelist", "train.csv", "val.csv"),
    "tars": ("pirl_disk_shards", "train", "val"),
    "arrow": ("pirl_disk_hf", "train", "val"),
    "parquet": ("pirl_disk_hf", "data/train-*.parquet", "data/val-*.parquet"),
}


def of_kind(kind, root, split):
    """Return a split of labeled data as a run opens it."""
    source, *places = SOURCE_OF_KIND[kind]
    paths = [f"config.DATA.{name}.DATA_PATHS=[nowhere]" for name in ("TRAIN", "TEST")]
    config = compose("config=benchmark/pirl/quick_linear", *paths)
    for name, place in zip(("TRAIN", "TEST"), places, strict=True):
        sources = {"DATA_SOURCES": [source], "LABEL_SOURCES": [source]}
        config.DATA[name].update(DATA_PATHS=[str(root / place)], **sources)
    return open_datasets(config, [split])[split.lower()]


@pytest.mark.parametrize("kind", KINDS)
def test_test_labels__are_indices_of_training_classes(kind, tmp_path):
    train = [("a", gray(1)), ("b", gray(2)), ("c", gray(3))]
    write_kind(kind, tmp_path, {"train": train, "val": [("b", gray(4)), ("c", gray(5))]})
    for split, label_of_level in (("TRAIN", {1: 0, 2: 1, 3: 2}), ("TEST", {4: 1, 5: 2})):
        data = of_kind(kind, tmp_path, split)
        levels = [int(data.disk.source[row][0][0, 0, 0]) for row in range(len(data))]
        labels = [int(data[row]["label"][0]) for row in range(len(data))]
        assert dict(zip(levels, labels, strict=True)) == label_of_level
