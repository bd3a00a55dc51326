"""PIRL's state: tensors of fixed shape, several batches per update, other checkpoints."""

import copy

import pytest
import timm.utils
import torch
from safetensors.torch import load_file, save_file

import pirl_plugin as pirl
from pirl_plugin.method.settings import unpack_state
from pirl_plugin.system.failures import Refused
from tests.helpers.processes import run_in_processes

GENERATOR = torch.Generator().manual_seed(0)
PHOTOS = [
    torch.randint(256, (3, 40, 50), dtype=torch.uint8, generator=GENERATOR) for _ in range(24)
]


def make(photos=PHOTOS, **options):
    torch.manual_seed(0)
    data = pirl.ImageDataset(photos, pirl.RotationViews(image_size=32))
    loss = pirl.PIRLLoss(len(data), num_negatives=4, estimator="info_nce", **options)
    return pirl.PIRL(pirl.WideResNet(10, width=0.125), data, loss), data


def batches(data, size, place=0, ranks=1):
    rows = range(place, len(data), ranks)
    return [
        pirl.collate_views([data[row] for row in rows[start : start + size]])
        for start in range(0, len(rows), size)
    ]


def accumulate(every, place=0, ranks=1):
    """Return the bank after an epoch with one update per batch, and with one per ``every``."""
    banks = []
    for step in (1, every):
        model, data = make()
        model.eval()  # the same embeddings, whatever ran before
        model.train(mode=True)
        for norm in model.trunk.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.eval()
        for number, batch in enumerate(batches(data, 4 // ranks, place, ranks), 1):
            model(batch).backward()
            if number % step == 0 or number == 6:
                model.update()
        banks.append((model.bank.rows, model.loss.step))
    return banks


def _on_rank(place, ranks):
    return accumulate(3, place, ranks)


@pytest.mark.parametrize("every", [2, 3, 5])
def test_update__applies_all_batches_since_the_last(every):
    (expected, steps), (found, found_steps) = accumulate(every)
    assert torch.equal(found, expected)
    assert found_steps == steps == 6


def test_update__applies_batches_of_all_ranks():
    for (expected, _), (found, _) in run_in_processes(_on_rank, 2):
        assert torch.equal(found, expected)


def test_batches__are_kept_for_at_most_an_epoch(caplog):
    model, data = make()
    caplog.clear()
    for batch in batches(data, 8) * 2:
        model(batch)
    assert len(model._batches) == 3
    assert "not updated in the last 4 batches" in caplog.text


def test_state__is_tensors_of_fixed_shape_that_other_programs_save(tmp_path):
    model, data = make()
    before = {name: value.shape for name, value in model.state_dict().items()}
    averaged = timm.utils.ModelEmaV3(model)
    for batch in batches(data, 4):
        model(batch).backward()
        model.update()
        averaged.update(model)
    assert {name: value.shape for name, value in model.state_dict().items()} == before
    copied = copy.deepcopy(model)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    copied.load_state_dict(load_file(tmp_path / "model.safetensors"))
    batch = batches(data, 4)[0]
    assert torch.equal(copied(batch), model(batch))
    half = {name: value.half() for name, value in model.state_dict().items()}
    assert unpack_state(half["loss._extra_state"])["step"] == 6


def test_earlier_state__is_a_dictionary_and_continues_bit_for_bit():
    model, data = make(norm_constant_momentum=0.9)
    again, _ = make(norm_constant_momentum=0.9)
    first, second = batches(data, 12)
    model(first).backward()
    model.update()
    state = model.state_dict()
    numbers = unpack_state(state["loss._extra_state"])
    names = ("step", "seed", "norm_constant", "temperature")
    state["loss._extra_state"] = {name: numbers[name] for name in names}
    again.load_state_dict(state)
    assert torch.equal(again(second), model(second))


def test_averaged_state__is_refused_if_it_is_no_longer_readable():
    model, _ = make()
    state = model.state_dict()
    state["loss._extra_state"] = state["loss._extra_state"] // 2
    with pytest.raises(Refused, match=r"damaged, or an average of several"):
        model.load_state_dict(state)


@pytest.mark.parametrize("file", ["lightning.ckpt", "model.safetensors"])
def test_checkpoints_of_other_programs__record_the_images(file, tmp_path):
    model, _ = make([torch.rand(2, 40, 50) * 900 for _ in range(4)])
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    if file.endswith("safetensors"):
        save_file(state, tmp_path / file)
    else:
        torch.save({"state_dict": state}, tmp_path / file)
    found = pirl.load_trunk(tmp_path / file).network_config
    expected = model.trunk.network_config
    assert (found.size, found.dtype, found.channels) == (32, "float32", 2)
    assert (found.mean, found.std) == (expected.mean, expected.std)
