"""PIRL in one module against its parts, for each kind of views."""

import pytest
import torch
from torch import nn

import pirl_plugin as pirl

PHOTOS = [
    torch.randint(
        256, (3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    for seed in range(12)
]
VIEWS = {
    "jigsaw": pirl.JigsawViews(image_size=32, patches_crop_size=48, patch_size=12),
    "rotation": pirl.RotationViews(image_size=32),
    "image only": pirl.ImageViews(image_size=32),
    "floats": lambda image: {"images": torch.ones(3, 32, 32), "other": torch.zeros(3, 8, 8)},
}


def make(views="jigsaw"):
    torch.manual_seed(0)
    data = pirl.ImageDataset(PHOTOS, VIEWS[views])
    model = pirl.PIRL(pirl.WideResNet(10, width=0.125), data)
    return model, data, pirl.collate_views([data[row] for row in (2, 7, 5)])


def normalized(view):
    return pirl.normalize_images(view) if view.dtype == torch.uint8 else view


@pytest.mark.parametrize("views", VIEWS)
def test_forward_and_update__are_those_of_the_parts(views):
    model, _, batch = make(views)
    reference, _, _ = make(views)
    value = model(batch)
    value.backward()
    model.update()

    f_image = reference.f(reference.trunk(normalized(batch["images"])))
    g_transformed = [g(reference.trunk(normalized(batch[name]))) for name, g in reference.g.items()]
    expected = reference.loss(f_image, g_transformed or None, batch["index"])
    expected.backward()
    reference.loss.update(batch["index"], f_image)
    assert torch.equal(value, expected)
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert torch.equal(model.bank.rows, reference.bank.rows)
    assert model.bank.visited.nonzero().flatten().tolist() == [2, 5, 7]


def test_update__needs_a_batch_of_its_own():
    model, _, batch = make()
    with torch.no_grad():
        model(batch)  # a test phase
    for _ in range(2):
        with pytest.raises(ValueError, match=r"expected model\(batch\) in training mode"):
            model.update()
        model(batch)
        model.update()


def test_fill_bank__makes_the_rows_the_embeddings():
    model, _, batch = make()
    model.eval()
    model.fill_bank([batch])
    f_image = model.f(model.trunk(pirl.normalize_images(batch["images"])))
    torch.testing.assert_close(
        model.bank.rows[batch["index"]], nn.functional.normalize(f_image), rtol=1e-5, atol=1e-6
    )


def test_trunk__keeps_its_state():
    torch.manual_seed(0)
    trunk = pirl.WideResNet(10, width=0.125)
    trunk.bn1.eval()  # frozen
    before = {name: value.clone() for name, value in trunk.state_dict().items()}
    pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"]))
    assert trunk.training
    assert not trunk.bn1.training
    for name, value in trunk.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_views__have_the_image():
    data = pirl.ImageDataset(PHOTOS, lambda image: {"left": torch.zeros(3, 8, 8)})
    with pytest.raises(ValueError, match="the views are left: expected images"):
        pirl.PIRL(pirl.WideResNet(10, width=0.125), data)


def test_pirl__refuses_a_loss_of_another_number_of_images():
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    loss = pirl.PIRLLoss(len(data) + 1, num_negatives=2)
    with pytest.raises(ValueError, match="expected a row for each"):
        pirl.PIRL(pirl.WideResNet(10, width=0.125), data, loss)
