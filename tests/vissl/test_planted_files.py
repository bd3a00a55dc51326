"""No file runs code or starts a program, wherever files are read.

A planted file is a pickle that creates a folder, or an image that starts like PostScript, which PIL
passes to the program ``gs`` on PATH.
"""

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import yaml
from PIL import EpsImagePlugin, Image
from torchvision.datasets import ImageFolder

from pirl_plugin.checkpoints.read import read_config
from pirl_plugin.evaluation.feature_store import read_features
from pirl_plugin.images import prepare_command
from pirl_plugin.images.opening import open_named, open_source
from tests.helpers.images import save_gray

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


class Planted:
    """Creates a folder when unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def listed(path):
    open_named("pirl_disk_filelist", path).paths()


def features(path):
    read_features(path, {}, "")


def array(planted, path):
    np.save(path, np.array([planted, planted], dtype=object), allow_pickle=True)


def pickled(planted, path):
    path.write_bytes(pickle.dumps(planted))


def progress(planted, path):
    np.savez(path, progress=np.array(planted, dtype=object))


def document(planted, path):
    path.write_text(f"A: !!python/object/apply:os.mkdir ['{planted.path}']\n")


def test_planted_code__is_refused_and_not_executed(tmp_path, subtests):
    for name, write, read in (
        ("images.npy", array, listed),
        ("images.npy", pickled, listed),
        ("features.npz", progress, features),
        ("features.npz", pickled, features),
        ("train_config.yaml", document, read_config),
    ):
        with subtests.test(read=read.__name__, write=write.__name__):
            write(Planted(tmp_path / "ran"), tmp_path / name)
            words = r"(?i)pickle|Python objects|safe|not an array of strings|constructor"
            words += "|another program or version wrote it"
            with pytest.raises(Exception, match=words):
                read(tmp_path / name)
            assert not (tmp_path / "ran").exists()


def test_planted_code__runs_without_our_loaders(tmp_path):
    """Without our loaders, each of these files would run its code."""
    document(Planted(tmp_path / "ran"), tmp_path / "a.yaml")
    yaml.unsafe_load((tmp_path / "a.yaml").read_text())
    assert (tmp_path / "ran").exists()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program ``gs`` on PATH and return the mark that it leaves."""
    mark = tmp_path / "ran"
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gs").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (folder / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return mark


def in_folder(folder):
    return open_source(folder)


def in_tar(folder):
    with tarfile.open(folder / "0.tar", "w") as tar:
        for name in ("0.png", "1.jpg"):
            tar.add(folder / "cat" / name, name)
    return open_source(folder)


def in_hugging_face(folder):
    import datasets

    paths = [str(folder / "cat" / name) for name in ("0.png", "1.jpg")]
    data = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    data.save_to_disk(folder / "hf")
    return open_source(folder / "hf")


def in_memory(folder):
    return open_source([(folder / "cat" / name).read_bytes() for name in ("0.png", "1.jpg")])


def in_torchvision(folder):
    return open_source(ImageFolder(folder))


@pytest.mark.parametrize(
    "open_images",
    [in_folder, in_tar, in_hugging_face, in_memory, in_torchvision],
)
def test_planted_program__is_not_started(open_images, program, tmp_path):
    folder = tmp_path / "data"
    save_gray(folder / "cat" / "0.png")
    (folder / "cat" / "1.jpg").write_bytes(POSTSCRIPT)
    source = open_images(folder)
    assert [source[row][1] for row in range(2)] == [True, False]
    assert not program.exists()


def test_planted_program__is_not_started_by_prepare(program, tmp_path):
    save_gray(tmp_path / "in" / "0.png")
    (tmp_path / "in" / "1.jpg").write_bytes(POSTSCRIPT)
    prepare_command.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"])
    assert not program.exists()


def test_planted_program__is_started_by_pil(program, monkeypatch):
    """PIL itself would start the program."""
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    with pytest.raises(OSError), Image.open(io.BytesIO(POSTSCRIPT)) as image:  # noqa: PT011
        image.load()
    assert program.exists()
