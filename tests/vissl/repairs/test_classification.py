"""Unlabeled images are neither trained on nor scored."""

import numpy as np
import pytest
import torch

from pirl_plugin.vissl.adapters.dataset import PIRLDataset, draw_rows


@pytest.mark.parametrize("labels", [np.array([3, 2]), np.array([[0, 1], [1, 1]])])
def test_label__is_minus_one_for_unreadable_image(labels):
    dataset = PIRLDataset.__new__(PIRLDataset)
    vars(dataset).update(
        labels_init=True,
        label_sources=["pirl_disk_folder"],
        label_objs=[labels],
        label_type="standard",
        data_limit=-1,
        data_objs=[[("gray", False), ("photo", True)]],
        transform=None,
    )
    unreadable, readable = (dataset[row] for row in (0, 1))
    several = labels.ndim > 1  # multi-class labels have no value for "none"
    assert np.all(unreadable["label"][0] == (labels[0] if several else -1))
    assert np.all(readable["label"][0] == labels[1])


@pytest.mark.parametrize("balanced", [False, True])
def test_limit__draws_only_labeled_images(balanced):
    labels = np.array([-1, 0, 0, 1, -1, -1, 1])
    sampling = {"IS_BALANCED": balanced, "SKIP_NUM_SAMPLES": 0, "SEED": 0}
    assert sorted(draw_rows(labels, 4, sampling)) == [1, 2, 3, 6]
    assert draw_rows(labels, -1, sampling).tolist() == [1, 2, 3, 6]


def test_accuracy__counts_only_labeled_images():
    from vissl.meters.accuracy_list_meter import AccuracyListMeter

    meter = AccuracyListMeter(num_meters=2, topk_values=[1], meter_names=[])
    right = torch.eye(3)
    meter.update([right, right.flip(0)], torch.tensor([0, -1, 2]))
    meter.update([right, right], torch.tensor([-1, -1, -1]))
    assert meter.value == {"top_1": {0: 100.0, 1: 0.0}}
