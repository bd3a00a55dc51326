"""Batches: shapes, masked labels, and shared memory in workers."""

import pytest
import torch
from torch.utils.data import DataLoader

from pirl_plugin.data.collator import pirl_collator


def sample(row, valid=True, second="patches"):
    shape = (9, 3, 4, 4) if second == "patches" else (3, 8, 8)
    data = {
        "images": torch.full((3, 8, 8), row % 256, dtype=torch.uint8),
        second: torch.full(shape, (row + 1) % 256, dtype=torch.uint8),
    }
    return {"data": data, "data_idx": [row], "data_valid": [1 if valid else -1], "label": [row]}


class Samples:
    def __len__(self):
        return 5

    def __getitem__(self, row):
        return sample(row, valid=row != 3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_collator__jigsaw_shapes(size):
    batch = pirl_collator([sample(row) for row in range(size)])
    assert list(batch) == ["images", "patches", "label", "data_valid"]
    assert all(isinstance(value, list) and len(value) == 1 for value in batch.values())
    assert batch["images"][0].shape == (size, 3, 8, 8)
    assert batch["patches"][0].shape == (9 * size, 3, 4, 4)
    assert batch["label"][0].tolist() == list(range(size))
    assert batch["label"][0].dtype == torch.int64
    assert batch["data_valid"][0].dtype == torch.bool
    assert batch["label"][0].shape == batch["data_valid"][0].shape == (size,)
    patches = batch["patches"][0].view(size, 9, 3, 4, 4)
    assert (patches == torch.arange(1, size + 1).view(-1, 1, 1, 1, 1)).all()


def test_collator__rotation_shapes():
    batch = pirl_collator([sample(row, second="rotated") for row in range(3)])
    assert batch["rotated"][0].shape == (3, 3, 8, 8)
    assert "patches" not in batch


@pytest.mark.parametrize("valid", [[True, False, True], [False, False]])
def test_collator__masks_the_label_of_unreadable_images(valid):
    batch = pirl_collator([sample(10 + k, ok) for k, ok in enumerate(valid)])
    assert batch["label"][0].tolist() == [10 + k if ok else -1 for k, ok in enumerate(valid)]
    assert batch["data_valid"][0].tolist() == valid


@pytest.mark.parametrize("workers", [0, 1])
def test_collator__in_a_loader(workers):
    loader = DataLoader(
        Samples(), batch_size=4, collate_fn=pirl_collator, num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip
    batches = list(loader)
    assert batches[0]["images"][0].is_shared() == bool(workers)
    assert torch.cat([batch["label"][0] for batch in batches]).tolist() == [0, 1, 2, -1, 4]
    assert batches[1]["patches"][0].shape == (9, 3, 4, 4)
    assert (batches[1]["patches"][0] == 5).all()


def test_collator__refuses_other_transforms():
    with pytest.raises(TypeError, match=r"type Tensor; expected the dict of views.*TRANSFORMS"):
        pirl_collator([{"data": torch.zeros(3), "data_idx": [0], "data_valid": [1]}])
