"""The covariant tasks: the label is the transformation that the views show."""

import numpy as np
import pytest
import torch

from pirl_plugin.views.image import ImageViews
from pirl_plugin.views.pretext import JigsawTask, RotationTask
from pirl_plugin.views.random import image_generator
from pirl_plugin.vissl.adapters.collator import pirl_collator

PLAIN = {"jitter_p": 0, "photometric_p": 0, "grayscale_p": 0, "flip_p": 0}


def photo():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 60, 80), dtype=np.uint8))


def test_jigsaw_task__label_is_the_order_of_the_patches():
    rows, columns = torch.meshgrid(torch.arange(90), torch.arange(90), indexing="ij")
    image = torch.stack([rows, columns, torch.zeros_like(rows)]).to(torch.uint8)
    task = JigsawTask(
        20, patches_crop_size=90, patch_size=20, patches_scale=(1.0, 1.0), backend="pil", **PLAIN
    )
    labels = set()
    for row in range(100):
        made = task(image, image_generator(0, 0, row))
        corner = made["patches"][:, :2, 0, 0].long() // 30  # (9, 2): the cell's row and column
        shown = corner[:, 0] * 3 + corner[:, 1]
        assert shown.tolist() == task.permutations.orders[made["label"]].tolist()
        labels.add(int(made["label"]))
    assert len(labels) > 15  # of 20, in 100 draws
    assert set(made) == {"patches", "label"}


def test_rotation_task__label_is_the_number_of_quarter_turns():
    labels = set()
    for row in range(20):
        made = RotationTask(image_size=32)(photo(), image_generator(0, 0, row))
        # The first draws of an image's generator are those of its standard view.
        upright = ImageViews(image_size=32)(photo(), image_generator(0, 0, row))["images"]
        assert torch.equal(made["rotated"], torch.rot90(upright, int(made["label"]), dims=(1, 2)))
        labels.add(int(made["label"]))
    assert labels == {0, 1, 2, 3}


@pytest.mark.parametrize("task", [JigsawTask(5, 36, 8), RotationTask(32)])
def test_collator__takes_the_tasks_label_and_masks_invalid_images(task):
    made = [task(photo(), image_generator(0, 0, row)) for row in range(3)]
    expected = [int(views["label"]) for views in made]
    made[1] = task.placeholder()
    samples = [
        {"data": views, "data_idx": [10 + i], "data_valid": [1 if i != 1 else -1]}
        for i, views in enumerate(made)
    ]
    batch = pirl_collator(samples)
    assert batch["label"][0].tolist() == [expected[0], -1, expected[2]]
    assert batch["label"][0].dtype == torch.int64
    assert set(batch) == {*made[0], "data_valid"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_permutations": None}, "num_permutations = None: expected a number.* such as 2000"),
        (
            {"num_permutations": 10, "image_size": 64},
            "image_size = 64: expected one of the",
        ),
    ],
)
def test_jigsaw_task__refuses(parameters, message):
    with pytest.raises(ValueError, match=message):
        JigsawTask(**parameters)
