"""The generated data set: deterministic, complete, and unsolvable by color."""

import errno

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.quickstart.sample import SCENES, sample_scene, write_sample_dataset
from pirl_plugin.system.failures import FailedWrite


@pytest.mark.parametrize("name", list(SCENES))
def test_sample_scene__depends_only_on_seed(name):
    first, again, other = (sample_scene(name, np.random.default_rng(s), 32) for s in (0, 0, 1))
    assert first.shape == (32, 32, 3)
    assert first.dtype == np.uint8
    assert first.std() > 3
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_write_sample_dataset__is_balanced_and_kept(tmp_path):
    out = tmp_path / "data"
    write_sample_dataset(out, num_train=21, num_val=10, size=24)
    files = sorted(out.rglob("*.jpg"))
    assert len(files) == 31
    assert {len(list((out / "train" / name).iterdir())) for name in SCENES} == {2, 3}
    assert Image.open(files[0]).size == (24, 24)
    before = files[0].stat().st_mtime_ns
    write_sample_dataset(out, num_train=21, num_val=10, size=24)
    assert files[0].stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_write_sample_dataset__leaves_nothing_on_full_disk(tmp_path, monkeypatch):
    def save(image, file, quality):
        if file.stem == "00001":
            raise OSError(errno.ENOSPC, "No space left on device")
        file.touch()

    monkeypatch.setattr(Image.Image, "save", save)
    with pytest.raises(FailedWrite, match=f"{tmp_path / 'data'}. Free some space"):
        write_sample_dataset(tmp_path / "data", num_train=21, num_val=0, size=24)
    assert list(tmp_path.iterdir()) == []


def test_scenes__cannot_be_classified_by_color():
    """kNN on color histograms with 4 levels per channel stays near chance, 10 %."""
    rows = {False: [], True: []}
    for label, name in enumerate(SCENES):
        for number in range(24):
            pixels = sample_scene(name, np.random.default_rng([label, number]), 32) // 64
            codes = pixels.reshape(-1, 3) @ np.array([16, 4, 1])
            histogram = np.sqrt(np.bincount(codes, minlength=64))
            rows[number >= 16].append((label, histogram))
    (gallery, known), (queries, asked) = (
        (torch.tensor(np.stack([h for _, h in part]), dtype=torch.float32),
         torch.tensor([label for label, _ in part]))
        for part in rows.values()
    )  # fmt: skip
    assert knn_accuracy(gallery, known, queries, asked, k=5) < 25
