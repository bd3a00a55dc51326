"""The adapter to VISSL's samples: lists of one tensor, masked labels, other transforms refused."""

import pytest
import torch

from pirl_plugin.vissl.adapters.collator import pirl_collator


def sample(row, valid=True, **more):
    data = {"images": torch.full((3, 8, 8), row, dtype=torch.uint8), **more}
    return {"data": data, "data_idx": [row], "data_valid": [1 if valid else -1], "label": [row]}


def test_collator__lists_of_one_tensor():
    patches = torch.zeros(9, 3, 4, 4, dtype=torch.uint8)
    batch = pirl_collator([sample(row, row != 1, patches=patches) for row in range(3)])
    assert list(batch) == ["images", "patches", "label", "data_valid"]
    assert all(isinstance(values, list) and len(values) == 1 for values in batch.values())
    assert batch["patches"][0].shape == (27, 3, 4, 4)
    assert batch["label"][0].tolist() == [0, -1, 2]
    assert batch["data_valid"][0].tolist() == [True, False, True]


def test_collator__a_tasks_label_comes_before_the_row():
    batch = pirl_collator([sample(row, row != 1, label=torch.tensor(row + 5)) for row in range(3)])
    assert batch["label"][0].tolist() == [5, -1, 7]


def test_collator__refuses_other_transforms():
    with pytest.raises(TypeError, match=r"type Tensor: expected the dict of views.*TRANSFORMS"):
        pirl_collator([{"data": torch.zeros(3), "data_idx": [0], "data_valid": [1]}])
