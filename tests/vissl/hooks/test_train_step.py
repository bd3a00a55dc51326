"""The train step of micro-batches, on a task as the host makes it, and in the host's own runs."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from classy_vision.tasks.classification_task import AmpType
from torch import nn

from pirl_plugin.vissl.adapters.loss import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
from pirl_plugin.vissl.hooks.train_step import pirl_micro_batches
from tests.helpers.host_runs import losses, run, settings

ROWS, DIM, BATCH = 40, 4, 12
HOOKS = ["on_forward", "on_loss_and_meter", "on_backward", "on_update"]


class Model(nn.Module):
    """g and f of patches and images, with a BatchNorm that may be frozen."""

    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6) if norm else nn.Tanh())
        self.g, self.f = nn.Linear(6 * 9, DIM), nn.Linear(6, DIM)

    def forward(self, views):
        patches = self.trunk(views["patches"]).reshape(-1, 6 * 9)
        return [self.g(patches), self.f(self.trunk(views["images"]))]


class Optimizer:
    """As the host wraps one."""

    def __init__(self, model):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        self.zero_grad = self.optimizer.zero_grad
        self.where = []

    def step(self, where):
        self.where.append(where)
        self.optimizer.step()


def batches(count, seed=3):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rows = torch.randperm(ROWS, generator=generator)[:BATCH]
        valid = torch.ones(BATCH, dtype=torch.bool)
        valid[2], rows[2] = False, -1
        yield {
            "images": [torch.randn(BATCH, 5, generator=generator)],
            "patches": [torch.randn(9 * BATCH, 5, generator=generator)],
            "label": [rows],
            "data_valid": [valid],
        }


def make_task(count, norm=False, loss=None, name="pirl_loss", **options):
    model = Model(norm)
    loss = loss or PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5)
    config = {
        "TRAINER": {"TRAIN_STEP_NAME": "pirl_micro_batches", "PIRL_MICRO_BATCHES": count},
        "DATA": {"TRAIN": {"BATCHSIZE_PER_REPLICA": BATCH}},
        "LOSS": {"name": name, name: {"ignore_index": -1}},
        "METERS": {"enable_training_meter": True},
    }
    task = SimpleNamespace(
        config=config, train=True, perf_stats=None, data_iterator=batches(3), base_model=model,
        model=model, loss=loss, optimizer=Optimizer(model), amp_type=None, meters=[], losses=[],
        enable_manual_gradient_reduction=False, where=0.25, num_updates=0, iteration=0,
        data_and_label_keys={"input": ["patches", "images"], "target": ["label"]},
        device=torch.device("cpu"), get_global_batchsize=lambda: BATCH, seen=[], **options,
    )  # fmt: skip
    bank_hook = MemoryBankHook()

    def run_hooks(name):
        task.seen.append((name, len(task.last_batch.sample["target"])))
        if task.config["LOSS"]["name"] == "pirl_loss":
            getattr(bank_hook, name)(task)

    task.run_hooks = run_hooks
    return task


def whole(task):
    """The same batches at once, in a plain loop."""
    for batch in task.data_iterator:
        target = batch["label"][0]
        output = task.model({"images": batch["images"][0], "patches": batch["patches"][0]})
        value = task.loss(output, target)
        task.optimizer.zero_grad()
        value.backward()
        task.optimizer.step(0.25)
        task.losses.append(value.item() * BATCH)
        if isinstance(task.loss, PIRLLoss):
            task.loss.update(target, output[-1])
    return task


def in_parts(task):
    for _ in range(3):
        assert pirl_micro_batches(task) is task
    return task


@pytest.mark.parametrize("count", [2, 3, 12])
def test_step__equals_the_whole_batch_without_batch_norm(count):
    expected, found = whole(make_task(1)), in_parts(make_task(count))
    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-5, atol=1e-5)
    pairs = zip(found.model.parameters(), expected.model.parameters(), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.loss.bank.rows, expected.loss.bank.rows, rtol=1e-4, atol=1e-5)
    # Scores s/τ up to 14 in float32: their exponentials agree to 1e-6.
    constants = found.loss.norm_constant, expected.loss.norm_constant
    torch.testing.assert_close(*constants, rtol=1e-5, atol=0)
    assert found.loss.step == 3


def test_step__with_frozen_batch_norm_equals_the_whole_batch():
    tasks = [make_task(1, norm=True), make_task(4, norm=True)]
    for task in tasks:
        task.model.trunk[1].running_mean += 0.1
        task.model.eval()
    expected, found = whole(tasks[0]), in_parts(tasks[1])
    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-5, atol=1e-5)


def test_step__estimates_z_from_the_statistics_that_the_loss_is_of():
    """BatchNorm's own pass for Z leaves no trace: one running update for each micro-batch."""
    found = make_task(4, norm=True)
    pirl_micro_batches(found)
    assert found.model.trunk[1].num_batches_tracked == 2 * 4  # images and patches
    again = make_task(4, norm=True)
    again.loss = PIRLLoss(
        ROWS, embedding_dim=DIM, num_negatives=5, norm_constant=found.loss.norm_constant.item()
    )
    pirl_micro_batches(again)
    torch.testing.assert_close(found.losses, again.losses)
    for mine, theirs in zip(found.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


def test_step__shows_hooks_the_whole_batch_once():
    task = make_task(4)
    pirl_micro_batches(task)
    assert task.seen == [(name, BATCH) for name in HOOKS]
    assert [tuple(output.shape) for output in task.last_batch.model_output] == [(BATCH, DIM)] * 2
    assert task.last_batch.target.shape == (BATCH,)
    assert task.last_batch.loss.item() * BATCH == pytest.approx(task.losses[0])
    assert task.num_updates == BATCH
    assert task.optimizer.where == [0.25]


def test_step__of_a_hosts_loss_leaves_unlabelled_images_out():
    def host_loss(output, target):
        return sum(nn.functional.cross_entropy(o, target % DIM, ignore_index=3) for o in output)

    def task(count):
        made = make_task(count, loss=lambda o, t: host_loss(o, t), name="cross_entropy")
        made.config["LOSS"]["cross_entropy"]["ignore_index"] = 3
        made.data_iterator = ({**b, "label": [b["label"][0] % DIM]} for b in batches(3))
        return made

    expected, found = whole(task(1)), in_parts(task(4))
    torch.testing.assert_close(found.losses, expected.losses, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(found.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_step__scales_each_part_and_steps_once():
    class Scaler:
        seen = []  # noqa: RUF012

        def scale(self, value):
            self.seen.append("scale")
            return 1024 * value

        def step(self, optimizer, where):
            self.seen.append("step")
            for p in task.model.parameters():
                p.grad /= 1024
            optimizer.step(where=where)

        def update(self):
            self.seen.append("update")

    task = make_task(3)
    task.amp_type, task.amp_grad_scaler = AmpType.PYTORCH, Scaler()
    expected = make_task(3)
    for one in (task, expected):
        pirl_micro_batches(one)
    assert Scaler.seen == ["scale"] * 3 + ["step", "update"]
    for mine, theirs in zip(task.model.parameters(), expected.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("enabled", [True, False])
def test_step__gives_meters_the_whole_batch(enabled):
    seen = []
    task = make_task(4)
    task.meters = [SimpleNamespace(update=lambda output, target: seen.append((output, target)))]
    task.config["METERS"]["enable_training_meter"] = enabled
    pirl_micro_batches(task)
    assert len(seen) == enabled
    for output, target in seen:
        assert torch.equal(target, task.last_batch.target)
        assert all(map(torch.equal, output, task.last_batch.model_output))


def test_step__reduces_gradients_by_hand_once_where_the_host_does(monkeypatch):
    expected, found, seen = make_task(4), make_task(4), []
    pirl_micro_batches(expected)

    def reduce(model):
        seen.append("reduce")
        for mine, theirs in zip(model.parameters(), expected.model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)

    host = "vissl.utils.activation_checkpointing"
    monkeypatch.setattr(f"{host}.manual_sync_params", lambda model: seen.append("sync"))
    monkeypatch.setattr(f"{host}.manual_gradient_all_reduce", reduce)
    found.enable_manual_gradient_reduction = True
    pirl_micro_batches(found)
    assert seen == ["sync", "reduce"]


def test_step__refuses_to_go_past_the_schedule():
    task = make_task(2)
    task.where = 1.0
    with pytest.raises(RuntimeError, match="the schedule is over at step 0"):
        pirl_micro_batches(task)


@pytest.mark.slow
def test_run__goes_on_in_fewer_processes_with_the_same_batch(image_folder, tmp_path):
    """Two processes × 4 images, then one × 2 micro-batches of 4, against two all the way."""
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
    split = [
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8",
        "config.TRAINER.PIRL_MICRO_BATCHES=2",
    ]
    result = run(*settings(image_folder, fewer, 2), *network, *split)
    assert "Resume from file" in result.stdout
    expected, found = losses(whole), losses(fewer)
    assert list(found) == [3, 4, 5]
    assert found == pytest.approx({step: expected[step] for step in found}, abs=2e-5)
    files = [
        torch.load(folder / "model_final_checkpoint_phase1.torch", weights_only=False)
        for folder in (whole, fewer)
    ]
    for name in ("bank.rows", "bank.visited", "norm_constant"):
        values = [file["loss"][name] for file in files]
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)
    trunks = [file["classy_state_dict"]["base_model"]["model"]["trunk"] for file in files]
    torch.testing.assert_close(*trunks, rtol=1e-4, atol=1e-5)
