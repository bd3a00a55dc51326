"""The adapter: what VISSL constructs and reads, and the errors where the data are missing."""

import pickle
from functools import partial

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.vissl.adapters.source import PIRLDiskDataset, SourceImage, check_source
from tests.helpers.images import save_grey


def config(transform="PIRLJigsaw", seed=0, **options):
    transforms = [{"name": transform}] if transform else []
    return {"SEED_VALUE": seed, "DATA": {"TRAIN": {"TRANSFORMS": transforms, **options}}}


def make(path, kind="pirl_disk_folder", **options):
    return PIRLDiskDataset(config(**options), kind, str(path), "TRAIN", "test")


def test_adapter__has_what_vissl_asks_a_source_for(folder):
    source = make(folder)
    assert len(source) == source.num_samples() == 6
    assert source.get_image_paths()[3] == str(folder / "b" / "1.jpg")
    assert source.get_labels().tolist() == [0, 0, 0, 1, 1, 3]
    assert source.class_root() == str(folder)


def test_item__is_what_the_first_transform_takes(folder):
    image, valid = make(folder, seed=5)[4]
    assert valid
    assert isinstance(image, SourceImage)
    assert image.pixels.shape == (3, 8, 12)
    assert (image.seed, image.epoch) == (5, 0)
    pil, valid = make(folder, transform="RandomResizedCrop")[4]
    assert valid
    assert pil.mode == "RGB"
    assert pil.size == (12, 8)
    assert isinstance(make(folder, transform=None)[0][0], Image.Image)


def test_epoch__travels_to_the_workers(folder):
    source = make(folder)
    source.set_epoch(3)
    assert pickle.loads(pickle.dumps(source))[0][0].epoch == 3


@pytest.mark.parametrize("transform", ["PIRLJigsaw", "CenterCrop"])
def test_unreadable__is_grey_and_counted(folder, transform):
    (folder / "a" / "x.webp").write_bytes(b"")
    source = make(folder, transform=transform, DEFAULT_GRAY_IMG_SIZE=20)
    image, valid = source[0]
    assert not valid
    grey = image.pixels.numpy() if transform == "PIRLJigsaw" else np.array(image).transpose(2, 0, 1)
    assert grey.shape == (3, 20, 20)
    assert (grey == 128).all()
    assert source.num_unreadable == 1


def test_filelist__takes_the_hosts_keys(folder):
    (folder / "list.txt").write_text("/old/old/1.jpg\n/other/1.jpg\n")
    options = {"REMOVE_IMG_PATH_PREFIX": "/old", "NEW_IMG_PATH_PREFIX": "/new"}
    source = make(folder / "list.txt", "pirl_disk_filelist", **options)
    assert source.get_image_paths() == ["/new/old/1.jpg", "/other/1.jpg"]
    with pytest.raises(ValueError, match=r"; or give labels as config\.DATA\.TRAIN\.LABEL_SOURCES"):
        source.get_labels()


@pytest.mark.parametrize(
    ("name", "kind", "error", "words"),
    [
        ("nowhere", "pirl_disk_folder", FileNotFoundError, "not a folder that exists.*jpeg"),
        ("nowhere", "pirl_disk_filelist", FileNotFoundError, "not a file that exists.*one path"),
        ("empty", "pirl_disk_folder", ValueError, "holds no image: expected a folder"),
        ("single", "pirl_disk_folder", ValueError, "1 image, and at least 2 are needed: expected"),
        ("one.txt", "pirl_disk_filelist", ValueError, "holds 1 image"),
        ("none.txt", "pirl_disk_filelist", ValueError, "holds no image"),
        ("objects.npy", "pirl_disk_filelist", ValueError, "cannot be read.*dtype=str"),
        ("numbers.npy", "pirl_disk_filelist", ValueError, r"shape \(2, 2\) and type int64"),
        ("junk.npy", "pirl_disk_filelist", ValueError, "cannot be read"),
        ("nowhere", "pirl_disk_voc07", FileNotFoundError, "expected VOC2007, the folder that"),
        ("empty", "pirl_disk_inaturalist18", FileNotFoundError, r"has no train2018\.json: expec"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_errors__say_path_wanted_and_key(tmp_path, name, kind, error, words, check):
    (tmp_path / "empty").mkdir()
    save_grey(tmp_path / "single" / "1.jpg")
    (tmp_path / "one.txt").write_text("1.jpg\n")
    (tmp_path / "none.txt").write_text("\n\n")
    np.save(tmp_path / "objects.npy", np.array(["a", None], dtype=object), allow_pickle=True)
    np.save(tmp_path / "numbers.npy", np.zeros((2, 2), np.int64))
    (tmp_path / "junk.npy").write_bytes(b"\x93NUMPYjunk")
    ask = partial(check_source, config()) if check else partial(PIRLDiskDataset, config())
    with pytest.raises(error, match=words) as caught:
        ask(kind, str(tmp_path / name), "TRAIN")
    assert str(tmp_path / name) in str(caught.value)
    named = "FILE" if kind == "pirl_disk_filelist" else "DIR"
    assert str(caught.value).endswith(f"; set config.DATA.TRAIN.DATA_PATHS=[{named}]")


def test_adapter__refuses_an_unknown_kind(tmp_path):
    with pytest.raises(ValueError, match="'disk_folder': expected one of pirl_disk_folder, "):
        make(tmp_path, "disk_folder")


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("folder", "is a file: expected a folder of images; take +config/pirl/datasets=filelist"),
        ("filelist", "is a folder: expected a list of files; take +config/pirl/datasets=folder"),
    ],
)
@pytest.mark.parametrize("labels", [[], ["LABELS"]])
def test_adapter__given_what_the_other_source_reads_names_that_one(kind, remedy, labels, folder):
    """A remedy was the mistake itself: a folder, where a list is read."""
    path = folder / "list.txt" if kind == "folder" else folder
    (folder / "list.txt").write_text("a/x.webp\nb/1.jpg\n")
    with pytest.raises(FileNotFoundError) as found:
        make(path, f"pirl_disk_{kind}", LABEL_SOURCES=labels)
    if labels:
        source = remedy.rpartition("=")[2]
        remedy = (
            f"{remedy.partition(';')[0]}; set config.DATA.TRAIN.DATA_SOURCES=[pirl_disk_{source}] "
            f"and config.DATA.TRAIN.LABEL_SOURCES=[pirl_disk_{source}]"
        )
    assert str(found.value) == f"{path} {remedy}"


def test_adapter__of_a_list_asks_for_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"set config\.DATA\.TRAIN\.DATA_PATHS=\[FILE\]$"):
        make(tmp_path / "nowhere", "pirl_disk_filelist")
