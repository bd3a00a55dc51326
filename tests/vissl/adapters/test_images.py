"""Our sources, transforms and collate function as VISSL's, and its resuming sampler."""

import torch
from PIL import Image

from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.vissl.adapters import images as data_adapters
from pirl_plugin.vissl.adapters.images import PIRLDiskDataset, pirl_collator


def dataset(folder, name):
    entry = [{"name": name}] if name else []
    return PIRLDiskDataset(
        {"SEED_VALUE": 3, "DATA": {"TRAIN": {"TRANSFORMS": entry}}},
        "pirl_disk_folder", str(folder), "TRAIN",
    )  # fmt: skip


def test_batch__of_a_source_a_transform_and_the_collator(tmp_path, make_image):
    for number in range(2):
        make_image(tmp_path / f"{number}.png", number)
    (tmp_path / "2.png").write_bytes(b"")
    data = dataset(tmp_path, "PIRLJigsaw")
    data.set_epoch(4)
    jigsaw = data_adapters.PIRLJigsaw.from_config({"name": "PIRLJigsaw", "image_size": 32})
    samples = []
    for row in range(3):
        image, valid = data[row]
        samples.append(
            jigsaw({"data": [image], "data_idx": [row], "data_valid": [int(valid)], "label": [row]})
        )
    batch = pirl_collator(samples)
    assert batch["label"][0].tolist() == [0, 1, -1]
    assert batch["data_valid"][0].tolist() == [True, True, False]
    expected = JigsawViews(image_size=32)(data[1][0].pixels, image_generator(3, 4, 1))
    assert torch.equal(batch["images"][0][1], expected["images"])
    assert isinstance(dataset(tmp_path, "")[0][0], Image.Image)
    assert data.unreadable_paths() == [str(tmp_path / "2.png")]
