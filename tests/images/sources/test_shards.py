"""Tars: random access, classes, workers, foreign and damaged ones."""

import copy
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pirl_plugin.images.prepare import main
from pirl_plugin.images.sources.folder import FolderSource
from pirl_plugin.images.sources.registry import source_at
from pirl_plugin.images.sources.shard_index import INDEX, write_index
from pirl_plugin.images.sources.shards import ShardSource
from pirl_plugin.vissl.adapters.source import PIRLDiskDataset


@pytest.fixture(scope="module")
def shards(tmp_path_factory, image_folder):
    out = tmp_path_factory.mktemp("shards") / "out"
    assert main([str(image_folder / "train"), str(out), "--shards", "7", "--workers", "1"]) == 0
    return out


def test_shards__hold_the_folders_images_and_classes(shards, image_folder):
    folder, source = FolderSource(image_folder / "train"), ShardSource(shards)
    assert len(list(shards.glob("*.tar"))) == 3  # 20 images by 7
    assert len(source) == len(folder) == 20
    assert source.labels().tolist() == folder.labels().tolist()
    for row in (19, 0, 7, 13):
        pixels, is_valid = source[row]
        assert is_valid
        assert torch.equal(pixels, folder[row][0])  # 48 px: kept byte for byte
    assert source.path_of(7) == f"{shards}/shard-000001.tar:ants/7.jpg"
    assert source.file_of(7) == f"{shards}/shard-000001.tar"
    assert isinstance(source_at(shards), ShardSource)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_shards__are_read_by_workers(method, shards):
    source = ShardSource(shards)
    source[0]  # its tar is open when the workers start
    loader = DataLoader(source, batch_size=None, num_workers=2, multiprocessing_context=method)
    for (pixels, is_valid), (expected, _) in zip(loader, source, strict=True):
        assert is_valid
        assert torch.equal(pixels, expected)
    assert torch.equal(pickle.loads(pickle.dumps(source))[8][0], source[8][0])


def test_shards__number_classes_by_folder_where_each_is_one(shards, image, tmp_path):
    assert ShardSource(shards).class_numbers() == {"ants": 0, "bees": 1}
    members = [("0/a.png", image), ("0/a.cls", b"0"), ("1/b.png", image), ("1/b.cls", b"0")]
    write_tar(tmp_path / "0.tar", members)
    assert ShardSource(tmp_path).class_numbers() == {}


def test_shards__are_a_data_source_of_vissl(shards):
    source = PIRLDiskDataset({"DATA": {"TRAIN": {}}}, "pirl_disk_shards", str(shards), "TRAIN")
    assert source.get_labels().tolist() == [0] * 10 + [1] * 10
    assert source[3][0].size == (48, 48)


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.fixture
def image(tmp_path_factory, make_image):
    path = tmp_path_factory.mktemp("one") / "1.png"
    make_image(path, seed=0)
    return path.read_bytes()


def test_shards__of_others_need_no_index(image, tmp_path):
    members = [("a.png", image), ("a.cls", b"7"), ("b.json", b"{}"), ("b.png", b"broken")]
    write_tar(tmp_path / "0.tar", members)
    write_tar(tmp_path / "1.tar", [("c.cls", b"3\n"), ("c.png", image)])
    source = ShardSource(tmp_path)
    assert [is_valid for _, is_valid in source] == [True, False, True]
    with pytest.raises(ValueError, match=r"0\.tar:b\.png has no class: expected a member \.cls"):
        source.labels()


@pytest.mark.parametrize("content", ["9" * 30, "cat", "3.0", "", str(2**63), "-2"])
def test_shards__refuse_a_class_that_is_no_number(content, image, tmp_path):
    """30 digits were a traceback, and of the others it said to copy the tar again."""
    write_tar(tmp_path / "0.tar", [("a.png", image), ("a.cls", content.encode()), ("b.png", image)])
    with pytest.raises(
        ValueError, match=rf"0\.tar: a\.cls = '{content}': expected a class in digi"
    ):
        ShardSource(tmp_path)


def test_shards__of_our_own_may_have_images_without_a_class(image, tmp_path):
    """``prepare --shards`` writes -1 for those beside the folders of classes."""
    members = [
        ("a.png", image),
        ("a.cls", b"-1"),
        ("b.png", image),
        ("b.cls", b"9223372036854775807"),
    ]
    write_tar(tmp_path / "0.tar", members)
    assert len(ShardSource(tmp_path)) == 2


def test_shards__hold_one_image_of_each_key(image, tmp_path):
    """``KEY.seg.png`` belongs to ``KEY.png``, and ``._KEY.png`` is what macOS adds to a tar."""
    names = ("._a.png", "a.png", "a.seg.png", "a.jpg", "in.side/b.png", "in.side/._b.png")
    write_tar(tmp_path / "0.tar", [(name, image) for name in names] + [("a.cls", b"7")])
    source = ShardSource(tmp_path)
    assert source.paths() == [f"{tmp_path}/0.tar:{name}" for name in ("a.png", "in.side/b.png")]


def test_shards__close_their_tars_with_the_source(image, tmp_path):
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", [("a.png", image), ("b.png", image)])
    before = len(os.listdir("/dev/fd"))
    for _ in range(3):
        source = ShardSource(tmp_path)
        for each in (source, pickle.loads(pickle.dumps(source)), copy.copy(source)):
            assert all(is_valid for _, is_valid in each)
        del source, each
    assert len(os.listdir("/dev/fd")) == before


def test_shards__refuse_an_index_of_other_tars(image, tmp_path, shards):
    write_tar(tmp_path / "0.tar", [("a.png", image), ("b.png", image)])
    (tmp_path / INDEX).write_bytes((shards / INDEX).read_bytes())
    with pytest.raises(ValueError, match=r"holds other tars than its index\.npz says: expected a"):
        ShardSource(tmp_path)
    for damage in (b"junk", (shards / INDEX).read_bytes()[:-60]):
        (tmp_path / INDEX).write_bytes(damage)
        with pytest.raises(ValueError, match=r"has a damaged index\.npz"):
            ShardSource(tmp_path)


def test_shards__more_than_the_files_that_may_be_open(image, tmp_path, monkeypatch):
    monkeypatch.setattr("pirl_plugin.images.sources.shards.MAX_OPEN", 3)
    for number in range(8):
        write_tar(tmp_path / f"{number}.tar", [("a.png", image), ("b.png", image)])
    source = ShardSource(tmp_path)
    before = len(os.listdir("/dev/fd"))
    assert all(is_valid for _ in range(2) for _, is_valid in source)
    assert len(os.listdir("/dev/fd")) == before + 3


def test_shards__a_member_larger_than_is_read_is_named(image, tmp_path, monkeypatch):
    write_tar(tmp_path / "0.tar", [("a.png", image), ("b.png", image + bytes(1))])
    source = ShardSource(tmp_path)
    monkeypatch.setattr("pirl_plugin.images.sources.shards.MAX_FILE_BYTES", len(image))
    assert source.read(0) == image
    with pytest.raises(OSError, match="the image has 0 MiB, more than are read"):
        source.read(1)


def test_shards__a_tar_that_became_a_pipe_is_named(image, tmp_path):
    """Reading it would wait, or fail with an error that names neither."""
    write_tar(tmp_path / "0.tar", [("a.png", image), ("b.png", image)])
    source = ShardSource(tmp_path)
    (tmp_path / "0.tar").unlink()
    os.mkfifo(tmp_path / "0.tar")
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match=r"0\.tar is not a regular file"):
        source.read(0)
    assert len(os.listdir("/dev/fd")) == before


def test_shards__that_were_not_completed_are_refused(image, tmp_path):
    write_tar(tmp_path / "0.tar", [("a.png", image), ("b.png", image)])
    (tmp_path / "prepare.json").write_text("{}")
    with pytest.raises(ValueError, match=r"prepare --shards did not end; repeat that command"):
        ShardSource(tmp_path)


def test_shards__a_tar_cut_short_is_named(image, tmp_path, caplog):
    noise = np.random.default_rng(0).bytes(30_000)
    write_tar(tmp_path / "0.tar", [("a.png", image), ("b.png", noise)])
    source = ShardSource(tmp_path)
    with open(tmp_path / "0.tar", "r+b") as tar:
        tar.truncate(20_000)
    assert not source[1][1]
    assert "0.tar ends within the image" in caplog.text
    with pytest.raises(ValueError, match=r"0\.tar is not a whole tar"):
        ShardSource(tmp_path)


def four_images(path, image):
    members = [("a.png", image), ("b.png", image), ("c.png", image), ("d.png", image)]
    write_tar(path, members)
    with tarfile.open(path) as tar:
        return [member.offset for member in tar]


def test_shards__a_tar_without_its_end_is_named(image, tmp_path):
    """tarfile takes both for whole: two images of four, without a word."""
    offsets = four_images(tmp_path / "0.tar", image)
    whole = (tmp_path / "0.tar").read_bytes()
    (tmp_path / "0.tar").write_bytes(whole[: offsets[2]])
    with pytest.raises(ValueError, match=rf"0\.tar is not .*cut off at byte {offsets[2]}, without"):
        ShardSource(tmp_path)
    (tmp_path / "0.tar").write_bytes(whole[: offsets[2] + 300])
    with pytest.raises(ValueError, match=rf"cut off at byte {offsets[2]}, without a block"):
        ShardSource(tmp_path)
    damaged = bytearray(whole)
    damaged[offsets[2] : offsets[2] + 8] = b"damaged "
    (tmp_path / "0.tar").write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"from byte {offsets[2]} on it holds damage"):
        ShardSource(tmp_path)
    (tmp_path / "0.tar").write_bytes(whole + bytes(5000))
    assert len(ShardSource(tmp_path)) == 4


def test_shards__two_tars_in_one_file_are_named(image, tmp_path):
    four_images(tmp_path / "0.tar", image)
    (tmp_path / "0.tar").write_bytes(2 * (tmp_path / "0.tar").read_bytes())
    with pytest.raises(ValueError, match=r"0\.tar is not .*it holds damage, or another tar"):
        ShardSource(tmp_path)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
def test_shards__links_in_a_tar_are_named(kind, image, tmp_path):
    four_images(tmp_path / "0.tar", image)
    with tarfile.open(tmp_path / "0.tar", "a") as tar:
        for name in ("readme.txt", "e.png"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "a.png"
            tar.addfile(link)
    with pytest.raises(ValueError, match=r"0\.tar is not .*e\.png is a link or sparse; tar -h"):
        ShardSource(tmp_path)


def test_shards__an_index_is_of_the_tars_as_they_are(image, tmp_path, caplog):
    tar = tmp_path / "0.tar"
    write_tar(tar, [("a.png", image), ("a.cls", b"0"), ("b.png", image), ("b.cls", b"1")])
    write_index(tmp_path)
    size, time = tar.stat().st_size, tar.stat().st_mtime_ns
    caplog.set_level("INFO")
    assert ShardSource(tmp_path).labels().tolist() == [0, 1]
    assert "reading the headers" not in caplog.text
    os.utime(tar, ns=(0, time + 1))  # as a copy
    assert ShardSource(tmp_path).labels().tolist() == [0, 1]
    assert "reading the headers of 1 tars, whose times are not those of the index" in caplog.text
    write_tar(tar, [("a.png", image), ("a.cls", b"1"), ("b.png", image), ("b.cls", b"0")])
    assert tar.stat().st_size == size
    with pytest.raises(ValueError, match=r"holds other tars than its index\.npz says"):
        ShardSource(tmp_path)


def test_shards__an_index_without_times_is_compared_with_the_headers(image, tmp_path):
    write_tar(tmp_path / "0.tar", [("a.png", image), ("a.cls", b"0"), ("b.png", image)])
    write_index(tmp_path)
    with np.load(tmp_path / INDEX) as arrays:
        kept = {name: arrays[name] for name in arrays if name != "tar_times"}
    np.savez_compressed(tmp_path / INDEX, **kept)
    assert len(ShardSource(tmp_path)) == 2
    write_tar(tmp_path / "0.tar", [("a.png", image), ("a.cls", b"0"), ("c.png", image)])
    with pytest.raises(ValueError, match=r"holds other tars than its index\.npz says"):
        ShardSource(tmp_path)
