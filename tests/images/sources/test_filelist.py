"""Lists: arrays and text, prefixes, classes, and byte-order marks."""

import pickle

import numpy as np
import pytest

from pirl_plugin.images.sources.filelist import FileListSource
from pirl_plugin.images.sources.folder import FolderSource


def test_filelist__npy_is_mapped_and_not_pickled(folder):
    paths = [f"a/{n % 10}/x.webp" for n in range(5000)]
    paths[4999] = "a/x.webp"
    np.save(folder / "list.npy", np.array(paths))
    source = FileListSource(folder / "list.npy")
    assert len(source) == 5000
    sent = pickle.dumps(source)
    assert len(sent) < 5000 + 2000  # a byte an image says which were unreadable
    received = pickle.loads(sent)
    assert len(received) == 5000
    assert received[4999][1]
    assert not received[0][1]
    bytes_list = np.array([p.encode() for p in paths])
    np.save(folder / "list.npy", bytes_list)
    assert FileListSource(folder / "list.npy", mmap=False)[4999][1]


@pytest.mark.parametrize("mmap", [True, False])
def test_filelist__npy_that_is_an_archive_or_larger_than_memory_is_refused(mmap, tmp_path):
    file = tmp_path / "list.npy"
    with file.open("wb") as archive:
        np.savez(archive, paths=np.array(["a.jpg", "b.jpg"]))
    with pytest.raises(ValueError, match="it is an archive of arrays"):
        FileListSource(file, mmap=mmap)
    header = {"descr": "<U400000000", "fortran_order": False, "shape": (10**9,)}
    with file.open("wb") as absurd:
        np.lib.format.write_array_header_1_0(absurd, header)
    with pytest.raises(ValueError, match=r"list\.npy cannot be read"):
        FileListSource(file, mmap=mmap)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_filelist__text_lines_are_relative_to_the_list(mark, folder):
    """Editors on Windows begin UTF-8 files with a byte-order mark."""
    text = f"{mark}b/1.jpg\n\n{folder}/a/x.webp\r\n  \nä é/1.png"
    (folder / "list.txt").write_text(text, encoding="utf-8")
    source = FileListSource(folder / "list.txt")
    expected = ["b/1.jpg", "a/x.webp", "ä é/1.png"]
    assert source.paths() == [str(folder / name) for name in expected]
    assert all(is_valid for _, is_valid in source)


def test_filelist__classes_are_those_of_the_folder(folder):
    """A list of some images gives them the classes that the whole folder does."""
    names = ["b/2.PNG", "ä é/1.png", "b/1.jpg"]
    (folder / "list.txt").write_text("\n".join(names))
    whole = FolderSource(folder)
    labels = dict(zip(whole.paths(), whole.labels(), strict=True))
    source = FileListSource(folder / "list.txt")
    assert source.labels().tolist() == [labels[str(folder / name)] for name in names]
    assert source.class_root() == str(folder)


def test_filelist__named_without_a_folder_has_classes(folder, monkeypatch):
    (folder / "list.txt").write_text("b/2.PNG\na/x.webp")
    monkeypatch.chdir(folder)
    assert FileListSource("list.txt").labels().tolist() == [1, 0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["b/1.jpg", "a/z/3.jpeg"], r"list of paths in .* and .*/a: expected DIR/CLASS/IMAGE"),
        (["b/1.jpg", "nowhere/1.jpg"], r"names images in .*/nowhere, which is not a folder"),
    ],
)
def test_filelist__whose_paths_tell_no_classes_is_refused(names, message, folder):
    (folder / "list.txt").write_text("\n".join(names))
    with pytest.raises(ValueError, match=message):
        FileListSource(folder / "list.txt").labels()


def test_filelist__replaces_the_prefix_once(folder):
    (folder / "list.txt").write_text("/old/old/1.jpg\n/other/1.jpg\n")
    source = FileListSource(folder / "list.txt", remove_prefix="/old", new_prefix="/new")
    assert source.paths() == ["/new/old/1.jpg", "/other/1.jpg"]


def test_filelist__that_is_an_image_is_refused(folder, make_image):
    make_image(folder / "photo.jpg", seed=0)
    with pytest.raises(ValueError, match=r"photo\.jpg is no text: expected"):
        FileListSource(folder / "photo.jpg")


def test_filelist__that_is_a_folder_is_said_to_be_one(folder):
    """It was said not to exist."""
    with pytest.raises(FileNotFoundError, match=r"is a folder: expected a list of files$"):
        FileListSource(folder)
