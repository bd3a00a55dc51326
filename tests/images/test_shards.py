"""Tars: which members are images, their classes, and damaged tars."""

import io
import subprocess
import tarfile

import pytest
from PIL import Image

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.opening import open_source
from tests.helpers.images import save_gray
from tests.helpers.kinds import add_member, gray


def write_tar(path, names):
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "PNG")
    with tarfile.open(path, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(file.getvalue())
            tar.addfile(member, io.BytesIO(file.getvalue()))


def test_tar__is_refused_if_truncated_or_damaged(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, ["0.png", "1.png", "2.png"])
    whole = path.read_bytes()
    end = whole.rindex(b"IEND") + 8
    assert len(open_source(tmp_path)) == 3
    for length in [*range(1, end, 97), 1024, 2048, 512 * -(-end // 512)]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"a\.tar is not a complete tar"):
            open_source(tmp_path)
    for damaged in (
        whole[:1024] + b"x" * 512 + whole[1536:],  # a damaged header
        whole + whole,  # two tars in one file: the second would be ignored
        whole[:1024].ljust(3 << 20, b"\0"),  # an interrupted copy, padded to full length
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.tar is not a complete tar"):
            open_source(tmp_path)


def png(level):
    file = io.BytesIO()
    gray(level).save(file, "PNG")
    return file.getvalue()


def webdataset(path, columns):
    """Write a tar with four keys, each with a label and images in several columns."""
    with tarfile.open(path, "w") as tar:
        for number in range(4):
            for level, column in enumerate(columns):
                key = f"Key{number}" if level else f"KEY{number}"  # cases may differ
                add_member(tar, f"{key}.{column}", png(10 * number + level))
            add_member(tar, f"key{number}.CLS", f"class {number % 2}".encode())
    return path


@pytest.mark.parametrize("chosen", ["depth.png", "depth", "Depth"])
def test_tar__with_several_images_per_key_needs_a_choice(tmp_path, chosen):
    path = webdataset(tmp_path / "A.TAR", ["RGB.jpg", "depth.png"])
    with pytest.raises(ValueError, match=r"columns depth\.png, rgb\.jpg as `image_column`"):
        open_source(path)
    source = open_source(path, columns=Columns(image=chosen))
    assert [int(source[row][0][0, 0, 0]) for row in range(len(source))] == [1, 11, 21, 31]
    assert source.classes == ["class 0", "class 1"]
    with pytest.raises(ValueError, match=r"`image_column` = nir .* depth\.png, rgb\.jpg"):
        open_source(path, columns=Columns(image="nir"))


def test_tar__prefers_image_named_like_the_key(tmp_path):
    source = open_source(webdataset(tmp_path / "a.tar", ["depth.png", "PNG"]))
    assert [int(source[row][0][0, 0, 0]) for row in range(len(source))] == [1, 11, 21, 31]
    assert source.labels().tolist() == [0, 1, 0, 1]


def test_tar__counts_skipped_members(tmp_path, caplog):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "1.mask.png", png(1))  # a mask that precedes its image
        add_member(tar, "1.png", png(2))  # also a mask: the image is 1.jpg
        add_member(tar, "1.jpg", png(3))
        add_member(tar, "1.json", b"{}")
        add_member(tar, "2.png", png(4))
        add_member(tar, "2.png", png(5))  # the last one counts, as when unpacking
        add_member(tar, "5.png", png(9))
        add_member(tar, "5.PNG", png(9))
        add_member(tar, "x/v1.0.png", png(6))
        add_member(tar, "x/v1.1.png", png(7))
        add_member(tar, "x/._0.png", png(8))
        link = tarfile.TarInfo("3.png")
        link.type = tarfile.LNKTYPE
        link.linkname = "1.jpg"
        tar.addfile(link)
        link = tarfile.TarInfo("4.png")
        link.type = tarfile.SYMTYPE
        link.linkname = "1.jpg"
        tar.addfile(link)
    source = open_source(tmp_path)
    levels = {source.name_of(row): int(source[row][0][0, 0, 0]) for row in range(len(source))}
    expected = {"1.jpg": 3, "2.png": 5, "5.PNG": 9, "x/v1.0.png": 6, "x/v1.1.png": 7}
    assert levels == {f"a.tar:{name}": level for name, level in expected.items()}
    for reason in (
        "images beside an image with the same key (3)",
        "links and devices (2)",
        ".json (1)",
    ):
        assert reason in caplog.text


def test_tar__reads_classes_from_folders(tmp_path):
    """Packed with ``tar -cf images.tar .`` or ``tar -cf images.tar *``."""
    for name in ("0.png", "none/1.png", "b/x/2.png"):
        save_gray(tmp_path / "in" / name, 40)
    for number, packed in enumerate((".", "*")):
        (tmp_path / f"{number}").mkdir()
        tar = tmp_path / f"{number}" / "images.tar"
        subprocess.run(f"cd {tmp_path / 'in'} && tar -cf {tar} {packed}", shell=True, check=True)
        for path in (tar, tar.parent):
            source = open_source(path)
            labels = [[*source.classes, None][label] for label in source.labels()]
            names = [source.name_of(row).rpartition(":")[2] for row in range(3)]
            found = dict(zip(names, labels, strict=True))
            assert found == {"0.png": None, "none/1.png": "none", "b/x/2.png": "b"}
    write_tar(tmp_path / "flat.tar", ["1.png"])
    with pytest.raises(NoLabels, match="has no labels"):
        open_source(tmp_path / "flat.tar").labels()


def test_tar__refuses_labels_not_in_utf8(tmp_path):
    """Differently encoded labels used to become the same class."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "1.png", png(1))
        add_member(tar, "1.cls", "é".encode("cp1252"))
    with pytest.raises(ValueError, match="can't decode byte"):
        open_source(tmp_path)
