"""Batches: shapes, masked labels, and shared memory in workers."""

import pytest
import torch
from torch.utils.data import DataLoader

from pirl_plugin.images.collator import collate_views


def sample(row, valid=True, second="patches"):
    shape = (9, 3, 4, 4) if second == "patches" else (3, 8, 8)
    return {
        "images": torch.full((3, 8, 8), row % 256, dtype=torch.uint8),
        second: torch.full(shape, (row + 1) % 256, dtype=torch.uint8),
        "label": row,
        "data_valid": valid,
    }


class Samples:
    def __len__(self):
        return 5

    def __getitem__(self, row):
        return sample(row, valid=row != 3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_collate__jigsaw_shapes(size):
    batch = collate_views([sample(row) for row in range(size)])
    assert list(batch) == ["images", "patches", "label", "data_valid"]
    assert batch["images"].shape == (size, 3, 8, 8)
    assert batch["patches"].shape == (9 * size, 3, 4, 4)
    assert batch["label"].tolist() == list(range(size))
    assert batch["label"].dtype == torch.int64
    assert batch["data_valid"].dtype == torch.bool
    assert batch["label"].shape == batch["data_valid"].shape == (size,)
    patches = batch["patches"].view(size, 9, 3, 4, 4)
    assert (patches == torch.arange(1, size + 1).view(-1, 1, 1, 1, 1)).all()


def test_collate__rotation_shapes():
    batch = collate_views([sample(row, second="rotated") for row in range(3)])
    assert batch["rotated"].shape == (3, 3, 8, 8)
    assert "patches" not in batch


@pytest.mark.parametrize("valid", [[True, False, True], [False, False]])
def test_collate__masks_the_label_of_unreadable_images(valid):
    batch = collate_views([sample(10 + k, ok) for k, ok in enumerate(valid)])
    assert batch["label"].tolist() == [10 + k if ok else -1 for k, ok in enumerate(valid)]
    assert batch["data_valid"].tolist() == valid


@pytest.mark.parametrize("workers", [0, 1])
def test_collate__in_a_loader(workers):
    loader = DataLoader(
        Samples(), batch_size=4, collate_fn=collate_views, num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip
    batches = list(loader)
    assert batches[0]["images"].is_shared() == bool(workers)
    assert torch.cat([batch["label"] for batch in batches]).tolist() == [0, 1, 2, -1, 4]
    assert batches[1]["patches"].shape == (9, 3, 4, 4)
    assert (batches[1]["patches"] == 5).all()


def test_collate__of_nothing_is_refused():
    with pytest.raises(ValueError, match="there are no samples: expected at least one"):
        collate_views([])
