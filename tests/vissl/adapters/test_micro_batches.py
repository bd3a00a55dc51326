"""Micro-batches: same loss, gradient and bank as the complete batch, except with BatchNorm."""

import shutil

import pytest
import torch
from torch import nn

from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.method.settings import unpack_state
from pirl_plugin.vissl.adapters.model_input import in_micro_batches, prepare_model, split
from tests.helpers.configs import compose
from tests.helpers.host_runs import losses, run, settings

ROWS, DIM, BATCH = 40, 4, 12


class Model(nn.Module):
    """Compute g and f from patches and images, optionally with a BatchNorm."""

    def __init__(self, norm=False):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6) if norm else nn.Tanh())
        self.g, self.f = nn.Linear(6 * 9, DIM), nn.Linear(6, DIM)

    def forward(self, views):
        patches = self.trunk(views["patches"]).reshape(-1, 6 * 9)
        return [self.g(patches), self.f(self.trunk(views["images"]))]


def trained(count, norm=False):
    """Train for three steps in ``count`` micro-batches; one row per batch is invalid."""
    model, generator = Model(norm), torch.Generator().manual_seed(3)
    if count > 1:
        model.forward = in_micro_batches(model.forward, model, BATCH // count)
    loss, values = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(3):
        index = torch.randperm(ROWS, generator=generator)[:BATCH]
        index[2] = -1
        images = torch.randn(BATCH, 5, generator=generator)
        patches = torch.randn(9 * BATCH, 5, generator=generator)
        g, f = model({"images": images, "patches": patches})
        value = loss(f, g, index)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(index, f)
        values.append(value.item())
    return model, loss, values


@pytest.mark.parametrize("count", [2, 3, 12])
def test_micro_batches__match_full_batch(count):
    (expected, whole, values), (found, loss, others) = trained(1), trained(count)
    assert others == pytest.approx(values, rel=1e-5)
    for mine, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.bank.rows, whole.bank.rows, rtol=1e-4, atol=1e-5)
    # Scores s/τ reach 14 in float32, so exponentials agree to 1e-6.
    assert loss.norm_constant == pytest.approx(whole.norm_constant, rel=1e-5)


def test_batch_norm__is_updated_once_per_micro_batch():
    model, _, _ = trained(4, norm=True)
    norm = model.trunk[1]
    assert norm.num_batches_tracked == 3 * 2 * 4  # steps, images and patches
    layer, alone, batch = nn.BatchNorm1d(6), nn.BatchNorm1d(6), torch.randn(8, 6)
    forward = in_micro_batches(lambda x: [layer(x)], layer, largest=4)
    forward(batch.requires_grad_())[0].square().sum().backward()
    alone(batch[:4]), alone(batch[4:])
    assert torch.equal(layer.running_mean, alone.running_mean)
    assert torch.equal(layer.running_var, alone.running_var)


def test_micro_batches__repeat_dropout_and_leave_tests_whole():
    layer, sizes = nn.Dropout(), []

    def forward(x):
        sizes.append(len(x))
        return [layer(x)]

    x = torch.ones(8, 50, requires_grad=True)
    (output,) = in_micro_batches(forward, layer, largest=4)(x)
    output.sum().backward()
    assert torch.equal(x.grad, output.detach())  # 0 or 2, the same in both passes
    with torch.no_grad():
        in_micro_batches(forward, layer, largest=4)(x)  # as when filling a bank
        layer.eval()
        in_micro_batches(forward, layer, largest=4)(x)
    assert sizes == [4, 4, 4, 4, 4, 4, 8]


def test_micro_batches__are_at_most_the_given_number():
    batch = "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=10"
    overrides = ["config=pretrain/pirl/quick_jigsaw", batch, "config.TRAINER.PIRL_MICRO_BATCHES=4"]
    sizes = []

    class Counts(nn.Module):
        def forward(self, batch):
            sizes.append(len(batch))
            return [batch]

    model = Counts()
    prepare_model(model, compose(*overrides), torch.device("cpu"))
    model(torch.ones(10, 1))
    assert sorted(sizes) == [2, 2, 3, 3]


@pytest.mark.parametrize("largest", [1, 3, 4, 7, 20])
def test_split__keeps_views_of_an_image_together(largest):
    rows = torch.arange(7)
    patches = rows.repeat_interleave(9)
    parts = split({"images": rows, "patches": patches}, largest)
    sizes = [len(part["images"]) for part in parts]
    assert len(parts) == -(-7 // largest)
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1  # no single image next to larger micro-batches
    for part, alone in zip(parts, split(patches, largest, views=9), strict=True):
        assert torch.equal(part["patches"], part["images"].repeat_interleave(9))
        assert torch.equal(part["patches"], alone)
    assert torch.equal(torch.cat([part["images"] for part in parts]), rows)


@pytest.mark.slow
def test_run__resumes_in_fewer_processes_with_same_batch(image_folder, tmp_path):
    """Two processes × 4 images, then one × 2 micro-batches of 4, versus two throughout."""
    network = [
        "+config/pirl/models=timm",
        "config.MODEL.TRUNK.PIRL_TIMM.NAME=convnext_atto",  # without BatchNorm
        "config.DATA.TRAIN.TRANSFORMS="
        "[{name: PIRLJigsaw, image_size: 64, patches_crop_size: 120, patch_size: 32}]",
        "config.LOSS.pirl_loss.estimator=nce",
        "config.LOG_FREQUENCY=1",
        "config.CHECKPOINT.PIRL.KEEP_LAST=5",
    ]
    whole, fewer = tmp_path / "whole", tmp_path / "fewer"
    run(*settings(image_folder, whole, 2, processes=2), *network)
    fewer.mkdir()
    shutil.copy(whole / "model_phase0.torch", fewer)
    split = ["config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8", "config.TRAINER.PIRL_MICRO_BATCHES=2"]
    result = run(*settings(image_folder, fewer, 2), *network, *split)
    assert "Resume from file" in result.stdout
    expected, found = losses(whole), losses(fewer)
    assert list(found) == [3, 4, 5]
    assert found == pytest.approx({step: expected[step] for step in found}, abs=2e-5)
    files = [
        torch.load(folder / "model_final_checkpoint_phase1.torch", weights_only=True)
        for folder in (whole, fewer)
    ]
    for name in ("bank.rows", "bank.visited"):
        values = [file["loss"][name] for file in files]
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)
    constants = [unpack_state(file["loss"]["_extra_state"])["norm_constant"] for file in files]
    assert constants[0] == pytest.approx(constants[1], rel=1e-4)
    trunks = [file["classy_state_dict"]["base_model"]["model"]["trunk"] for file in files]
    torch.testing.assert_close(*trunks, rtol=1e-4, atol=1e-5)
