"""Files through the host's data set and real loader workers: draws, broken files, distributions."""

import io
import logging
import os
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from vissl.data.ssl_transforms import get_transform

from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.random import image_generator
from pirl_plugin.views.statistics import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.adapters.collator import pirl_collator
from pirl_plugin.vissl.adapters.source import PIRLDiskDataset
from pirl_plugin.vissl.adapters.transforms import PIRLJigsaw

SMALL = {"image_size": 24, "patches_crop_size": 30, "patch_size": 8}


class Images(Dataset):
    """What the host's data set does with a source and a transform, and nothing else."""

    def __init__(self, folder, **parameters):
        config = {"SEED_VALUE": 3, "DATA": {"TRAIN": {"TRANSFORMS": [{"name": "PIRLJigsaw"}]}}}
        self.source = PIRLDiskDataset(config, "pirl_disk_folder", str(folder), "TRAIN")
        self.transform = PIRLJigsaw(**SMALL, **parameters)

    def __len__(self):
        return len(self.source)

    def __getitem__(self, row):
        image, valid = self.source[row]
        sample = {"data": [image], "data_idx": [row], "data_valid": [1 if valid else -1]}
        return self.transform(sample)


def keep_warnings(file, worker):
    logging.getLogger().addHandler(logging.FileHandler(file))


def load(images, workers, epoch=0, batch_size=4, log=os.devnull):
    """One epoch in order: {name: the views of all rows}."""
    images.source.set_epoch(epoch)
    loader = DataLoader(
        images, batch_size=batch_size, collate_fn=pirl_collator, num_workers=workers,
        multiprocessing_context="forkserver" if workers else None,
        worker_init_fn=partial(keep_warnings, log),
    )  # fmt: skip
    batches = list(loader)
    return {name: torch.cat([batch[name][0] for batch in batches]) for name in batches[0]}


def test_loading__any_number_of_workers_draws_the_same_views(image_folder):
    images = Images(image_folder / "train")
    alone, shared = load(images, workers=0, epoch=1), load(images, workers=2, epoch=1)
    for name in alone:
        assert torch.equal(alone[name], shared[name]), name


def test_loading__a_resumed_run_goes_on_with_new_views(image_folder):
    first, second = (load(Images(image_folder / "train"), workers=0, epoch=e) for e in (0, 1))
    again = load(Images(image_folder / "train"), workers=0, epoch=1)  # as after a restart
    for name in ("images", "patches"):
        assert torch.equal(second[name], again[name])
        same = (first[name] == second[name]).flatten(1).all(dim=1)
        assert not same.any()


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=pytest.mark.slow, id="ten_thousand")]
)
def test_loading__mutated_files_never_stop_a_worker(count, tmp_path, make_image):
    originals = []
    for seed, options in enumerate([{}, {"progressive": True}, {"subsampling": 0}]):
        make_image(tmp_path / "original.png", seed, size=40)
        file = io.BytesIO()
        Image.open(tmp_path / "original.png").save(file, "JPEG", quality=80, **options)
        originals.append(file.getvalue())
    (tmp_path / "original.png").unlink()
    rng = np.random.default_rng(0)
    for number in range(count):
        data = bytearray(originals[number % 3])
        head = len(data) if number % 2 else 160  # headers as often as pixels
        for at in rng.integers(0, head, size=rng.integers(1, 8)):
            data[at] = rng.integers(256)
        if number % 7 == 0:
            del data[rng.integers(0, len(data)) :]
        (tmp_path / f"{number:05d}.jpg").write_bytes(data)
    images = Images(tmp_path)
    log = tmp_path / "log"
    valid = [
        load(images, workers=2, epoch=epoch, batch_size=50, log=log)["data_valid"]
        for epoch in (0, 1)
    ]
    assert torch.equal(*valid)
    unreadable = int((~valid[0]).sum())
    assert 0.1 * count < unreadable < 0.9 * count
    assert images.source.num_unreadable == unreadable
    warnings = [line for line in log.read_text().splitlines() if "A blank image" in line]
    assert len(warnings) == len(set(warnings)) == unreadable  # once a file, not once an epoch


def normalised(image):
    """uint8 (3, S, S) → mean and variance of each channel, of (x / 255 − mean) / std: (6,)."""
    mean = torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
    std = torch.tensor(IMAGENET_STD).view(3, 1, 1)
    pixels = (image / 255 - mean) / std
    return torch.cat([pixels.mean(dim=(1, 2)), pixels.var(dim=(1, 2))])


def pictures(count):
    rng = np.random.default_rng(1)
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((300, 260), Image.Resampling.BICUBIC))
        yield torch.from_numpy(smooth.copy()).permute(2, 0, 1)


def test_standard_view__has_the_statistics_of_the_pil_path():
    """The same draws through both paths, 224 px: their difference shows 0.003, not only 0.03."""
    fused, pil = JigsawViews(), JigsawViews(backend="pil")
    differences = []
    for row, pixels in enumerate(pictures(60)):
        views = [path._standard_view(pixels, image_generator(0, 0, row)) for path in (fused, pil)]
        differences.append(normalised(views[0]) - normalised(views[1]))
    differences = torch.stack(differences)
    error = differences.std(dim=0) / len(differences) ** 0.5
    assert (4 * error < 0.003).all()
    assert (differences.mean(dim=0).abs() < 0.003).all()


@pytest.mark.parametrize(
    ("draws", "shown"), [(9000, 0.06), pytest.param(40_000, 0.03, marks=pytest.mark.slow)]
)
def test_standard_view__has_the_statistics_of_vissls_own_transforms(draws, shown):
    """Draws of their own, so with an error; four of it is the difference that would show."""
    chain = get_transform(
        [
            {"name": "RandomResizedCrop", "size": 16, "scale": [0.08, 1.0]},
            {"name": "ColorJitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4,
             "hue": 0.2},
            {"name": "ImgPilRandomPhotometric"},
            {"name": "RandomGrayscale", "p": 0.2},
            {"name": "RandomHorizontalFlip"},
            {"name": "ToTensor"},
        ]
    )  # fmt: skip
    ours = JigsawViews(image_size=16)
    images = [pixels[:, :64, :80].contiguous() for pixels in pictures(8)]
    copies = [Image.fromarray(pixels.permute(1, 2, 0).numpy()) for pixels in images]
    torch.manual_seed(0)
    found = {"ours": [], "vissl": []}
    for draw in range(draws):
        at = draw % len(images)
        view = ours._standard_view(images[at], image_generator(0, 1, draw))
        found["ours"].append(normalised(view))
        sample = chain({"data": [copies[at]], "label": [0], "data_valid": [1], "data_idx": [0]})
        found["vissl"].append(normalised(sample["data"][0] * 255))
    values = {name: torch.stack(draws) for name, draws in found.items()}
    error = sum(each.var(dim=0) / draws for each in values.values()).sqrt()
    difference = values["ours"].mean(dim=0) - values["vissl"].mean(dim=0)
    assert (4 * error < shown).all(), error
    assert (difference.abs() < 4 * error).all(), difference / error
