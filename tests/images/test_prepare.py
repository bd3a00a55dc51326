"""Smaller copies: names, sizes, resuming, and files that are not its own."""

import io
import multiprocessing
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.files import UNFINISHED
from pirl_plugin.images import decode, prepare_work
from pirl_plugin.images.formats import can_read_heif
from pirl_plugin.images.prepare import main
from pirl_plugin.images.prepare_work import Settings, copy_block
from pirl_plugin.images.resized import is_prepared, resized_copy, write_new
from pirl_plugin.images.sources.folder import FolderSource
from pirl_plugin.images.sources.shards import ShardSource


@pytest.fixture
def photos(tmp_path, make_image):
    for name in ("a/wide.jpg", "a/big.png", "b/small.jpeg", "b/ä ü.JPG"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        make_image(path.with_suffix(".png"), seed=1, size=100)
        image = Image.open(path.with_suffix(".png"))
        path.with_suffix(".png").unlink()
        image.resize((30, 20) if "small" in name else (150, 90)).save(path)
    (tmp_path / "in" / "b" / "broken.jpg").write_bytes(b"broken")
    return tmp_path / "in"


def prepare(photos, *more):
    out = photos.parent / "out"
    return main([str(photos), str(out), "--size", "40", "--workers", "1", *more]), out


def test_prepare__keeps_folders_and_names(photos, capsys):
    status, out = prepare(photos)
    assert status == 0
    found = {
        os.path.relpath(path, out): Image.open(path).size for path in FolderSource(out).paths()
    }
    assert found == {
        "a/big.png.jpg": (67, 40),
        "a/wide.jpg": (67, 40),
        "b/small.jpeg": (30, 20),
        "b/ä ü.JPG": (67, 40),
    }
    assert (out / "b" / "small.jpeg").read_bytes() == (photos / "b" / "small.jpeg").read_bytes()
    whole = Image.open(photos / "a" / "wide.jpg").resize((67, 40), Image.Resampling.LANCZOS)
    copy = Image.open(out / "a" / "wide.jpg")
    assert np.abs(np.asarray(whole, float) - np.asarray(copy, float)).mean() < 3
    said = capsys.readouterr().out
    assert "4 images written, 0 found from before, 1 without a copy" in said
    assert "b/broken.jpg: cannot identify image file" in (out / "unreadable.txt").read_text()
    assert not list(out.rglob(".*"))


def test_prepare__keeps_the_numbers_of_classes_without_a_copy(photos):
    (photos / "aa").mkdir()
    (photos / "ab").mkdir()
    (photos / "ab" / "broken.jpg").write_bytes(b"broken")
    _, out = prepare(photos)
    assert FolderSource(out).labels().tolist() == [0, 0, 3, 3]


def test_prepare__makes_no_classes_of_the_folders_beside_images(photos):
    (photos / "notes").mkdir()
    (photos / "b" / "small.jpeg").rename(photos / "small.jpeg")
    _, out = prepare(photos)
    assert not (out / "notes").exists()


def test_prepare__goes_on_where_it_was_interrupted(photos, capsys):
    _, out = prepare(photos)
    kept = (out / "a" / "wide.jpg").stat().st_mtime_ns
    (out / "b" / "ä ü.JPG").unlink()
    (out / "a" / "big.png.jpg").write_bytes(b"")  # as after a loss of power
    assert prepare(photos)[0] == 0
    assert "2 images written, 2 found from before" in capsys.readouterr().out
    assert (out / "a" / "wide.jpg").stat().st_mtime_ns == kept
    assert Image.open(out / "a" / "big.png.jpg").size == (67, 40)


def test_prepare__never_writes_over_a_file_that_is_not_its_own(photos, capsys):
    _, out = prepare(photos)
    (out / "a" / "wide.jpg").write_text("a letter")
    Image.new("RGB", (99, 99)).save(out / "b" / "ä ü.JPG")
    assert prepare(photos)[0] == 1
    assert (out / "a" / "wide.jpg").read_text() == "a letter"
    assert Image.open(out / "b" / "ä ü.JPG").size == (99, 99)
    assert capsys.readouterr().out.count("is in the way") == 2


def test_prepare__a_damaged_photo_is_not_in_the_way_by_the_name_of_its_folder(photos):
    (photos / "b").rename(photos / "dog in the way")
    status, out = prepare(photos)
    assert "in the way/broken.jpg" in (out / "unreadable.txt").read_text()
    assert status == 0


def test_prepare__removes_what_a_killed_run_left_half_written(photos):
    _, out = prepare(photos)
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = out / "a" / f"{UNFINISHED}{socket.gethostname()}.{dead.pid}.01234567.0"
    left.write_bytes(b"half an image")
    prepare(photos)
    assert not left.exists()


def test_prepare__a_name_too_long_for_a_copys_is_a_problem_of_that_image(photos, make_image):
    """The whole copy ended with "make room"."""
    make_image(photos / "a" / f"{'n' * 248}.png", seed=1, size=100)
    Image.new("RGB", (99, 99)).save(photos / "a" / f"{'n' * 250}.jpg")
    status, out = prepare(photos)
    assert status == 0
    assert (
        "n.png: its copy's name, with .jpg, is too long; shorten it"
        in (out / "unreadable.txt").read_text()
    )
    assert (out / "a" / f"{'n' * 250}.jpg").is_file()


def test_prepare__two_images_never_share_the_name_of_a_copy(photos, capsys):
    Image.new("RGB", (99, 99), "red").save(photos / "a" / "big.png.jpg")
    problem = (
        f"{photos / 'a/big.png'}: the image big.png.jpg beside it is in the way of a copy of this "
        "name; rename one of them"
    )
    for done in ("4 images written, 0 found", "0 images written, 4 found"):
        status, out = prepare(photos)
        assert status == 1
        assert f"{done} from before, 2 without a copy" in capsys.readouterr().out
        assert problem in (out / "unreadable.txt").read_text()
        assert Image.open(out / "a" / "big.png.jpg").size == (40, 40)
    (photos / "a" / "big.png").rename(photos / "a" / "large.png")
    assert prepare(photos)[0] == 0
    assert Image.open(out / "a" / "large.png.jpg").size == (67, 40)


HEIF_PLUGIN = """
from PIL import BmpImagePlugin, Image

class HeifImageFile(BmpImagePlugin.BmpImageFile):
    format = "HEIF"

    def _open(self):
        self.fp.seek(4)
        super()._open()

def register_heif_opener():
    Image.register_open("HEIF", HeifImageFile, lambda prefix: prefix.startswith(b"HEIF"))
"""


def test_prepare__knows_small_heics_from_before(photos, monkeypatch):
    """Kept byte for byte, and looked at by a process that has decoded nothing yet."""
    (photos / "pillow_heif.py").write_text(HEIF_PLUGIN)
    file = io.BytesIO()
    Image.new("RGB", (30, 20)).save(file, "BMP")
    (photos / "small.heic").write_bytes(b"HEIF" + file.getvalue())
    monkeypatch.syspath_prepend(photos)
    can_read_heif.cache_clear()
    try:
        assert is_prepared(photos / "small.heic", 40)
        assert not is_prepared(photos / "small.heic", 10)
    finally:
        can_read_heif.cache_clear()
        Image.OPEN.pop("HEIF", None)
        if "HEIF" in Image.ID:
            Image.ID.remove("HEIF")
        sys.modules.pop("pillow_heif", None)


def test_prepare__refuses_folders_that_hold_something_else(photos):
    out = photos.parent / "out"
    out.mkdir()
    (out / "letter.txt").write_text("a letter")
    with pytest.raises(SystemExit, match=r"OUT = .*out holds files that are not of this command"):
        prepare(photos)
    (out / "letter.txt").unlink()
    prepare(photos)
    with pytest.raises(SystemExit, match=r"was begun with .*'size': 40.*: expected .*'size': 41"):
        prepare(photos, "--size", "41")
    with pytest.raises(SystemExit, match="lies in IN: expected another folder"):
        main([str(photos), str(photos / "out")])
    with pytest.raises(SystemExit, match="nowhere is not a folder that exists"):
        main([str(photos / "nowhere"), str(photos.parent / "new")])


def test_prepare__shards_of_a_changed_folder_are_refused(photos):
    prepare(photos, "--shards", "2")
    Image.new("RGB", (9, 9)).save(photos / "a" / "new.png")
    with pytest.raises(SystemExit, match=r"'images': 5.*expected .*'images': 6"):
        prepare(photos, "--shards", "2")


def test_copy__a_full_disk_ends_the_work(photos, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(prepare_work, "write_new", full)
    settings = Settings(photos, photos.parent / "out", 40, 90)
    with pytest.raises(OSError, match="No space left"):
        copy_block(settings, ["a/wide.jpg"])
    missing = copy_block(settings, ["a/nowhere.jpg"])
    assert "a/nowhere.jpg: [Errno 2] No such file" in missing.problems[0]


def test_copy__a_read_error_without_a_file_name_is_one_image_without_a_copy(photos, monkeypatch):
    """As of a bad sector: ``readinto`` names no file."""

    def resized(path, size, quality):
        if path.endswith("wide.jpg"):
            raise OSError(5, "Input/output error")
        return resized_copy(path, size, quality)

    monkeypatch.setattr(prepare_work, "resized_copy", resized)
    settings = Settings(photos, photos.parent / "out", 40, 90)
    result = copy_block(settings, ["a/wide.jpg", "a/big.png"])
    assert result.problems == [f"{photos / 'a/wide.jpg'}: [Errno 5] Input/output error"]
    assert result.written == 1


def test_prepare__resumed_shards_tell_what_has_no_copy(photos, capsys):
    Image.new("RGB", (9, 9)).save(photos / "b" / "broken.png")  # beside broken.jpg: one key
    first, out = prepare(photos, "--shards", "6")
    assert first == 0
    assert "5 images written, 0 found from before, 1 without a copy" in capsys.readouterr().out
    reasons = (out / "unreadable.txt").read_text()
    (out / "unreadable.txt").unlink()
    assert prepare(photos, "--shards", "6")[0] == 0
    assert "0 images written, 5 found from before, 1 without a copy" in capsys.readouterr().out
    assert (out / "unreadable.txt").read_text() == reasons
    Image.new("RGB", (9, 9)).save(photos / "b" / "broken.jpg")
    prepare(photos, "--shards", "6")
    assert (
        f"{photos / 'b/broken.jpg'}: could not be read when shard-000000.tar was written, and can "
        "be now; remove that tar, and repeat the command"
    ) in (out / "unreadable.txt").read_text()


def test_prepare__names_a_tar_that_was_cut_short(photos):
    _, out = prepare(photos, "--shards", "3")
    with open(out / "shard-000000.tar", "r+b") as tar:
        tar.truncate(700)
    with pytest.raises(SystemExit, match=r"shard-000000\.tar is not a whole tar .*: expected one"):
        prepare(photos, "--shards", "3")


def test_prepare__an_interrupted_run_leaves_no_index_of_the_tars_before(photos, monkeypatch):
    _, out = prepare(photos, "--shards", "3")

    def interrupted(work, count, workers):
        raise KeyboardInterrupt

    monkeypatch.setattr("pirl_plugin.images.prepare._run", interrupted)
    assert prepare(photos, "--shards", "3")[0] == 130
    with pytest.raises(
        ValueError, match=r"has no index\.npz, because prepare --shards did not end"
    ):
        ShardSource(out)


def test_prepare__writes_its_settings_once_and_whole(photos):
    _, out = prepare(photos)
    written = (out / "prepare.json").stat()
    assert prepare(photos)[0] == 0
    found = (out / "prepare.json").stat()
    assert (found.st_mtime_ns, found.st_ino) == (written.st_mtime_ns, written.st_ino)


def prepare_killed(photos):
    os.fsync = lambda file: os._exit(9)
    prepare(photos)


def test_prepare__goes_on_after_a_kill_before_its_settings_were_written(photos):
    kill = multiprocessing.get_context("fork").Process(target=prepare_killed, args=(photos,))
    kill.start()
    kill.join()
    out = photos.parent / "out"
    assert kill.exitcode == 9
    assert [path.name[:12] for path in out.iterdir()] == [".unfinished."]
    assert prepare(photos)[0] == 0
    assert not list(out.glob(".unfinished*"))


def test_write__takes_no_files_place_where_there_are_no_links(tmp_path, monkeypatch):
    def refused(*paths):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    write_new(tmp_path / "a" / "1.jpg", b"first")
    with pytest.raises(FileExistsError, match=r"a/1\.jpg exists"):
        write_new(tmp_path / "a" / "1.jpg", b"second")
    assert [path.read_bytes() for path in (tmp_path / "a").iterdir()] == [b"first"]


def test_copy__may_be_as_large_as_what_is_decoded_scaled(photos, monkeypatch):
    monkeypatch.setattr(decode, "SCALED_ABOVE", 80)
    monkeypatch.setattr(decode, "_SCALED_TO", 20)
    copy = resized_copy(str(photos / "a" / "wide.jpg"), 85, 90)
    assert Image.open(io.BytesIO(copy.content)).size == (142, 85)
