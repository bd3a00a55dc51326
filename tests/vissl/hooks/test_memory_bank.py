"""When the bank is updated, when it is not, and what is reported."""

import logging
import signal
from types import SimpleNamespace

import pytest
import torch
from vissl.config import AttrDict

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.system import watcher
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.method import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
from pirl_plugin.vissl.hooks.monitor import MonitorHook
from pirl_plugin.vissl.resume.exchange import ExchangeHook
from pirl_plugin.vissl.sections import MonitorSettings
from tests.helpers.tasks import FakeTask

ROWS, DIM = 20, 4


class TaskOfAnEpoch(FakeTask):
    """A task with VISSL's collator and the attributes that tests inspect."""

    more = frozenset({"data_and_label_keys", "batches", "begun_again"})


@pytest.fixture
def task():
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5)
    output = [torch.randn(3, DIM, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    target = torch.tensor([4, -1, 9])
    loss(output, target)
    return TaskOfAnEpoch(
        loss=loss,
        train=True,
        device=torch.device("cpu"),
        datasets={"train": range(ROWS)},
        config={"SEED_VALUE": 0, "DATA": {"TRAIN": {"BATCHSIZE_PER_REPLICA": 8}}},
        last_batch=SimpleNamespace(
            sample={"target": target}, model_output=output, loss=torch.tensor(0.0)
        ),
    )


def step(task):
    MemoryBankHook(ExchangeHook(1.0)).on_update(task)


def test_update__moves_valid_rows_only_in_training(task):
    before = task.loss.bank.rows.clone()
    task.train = False
    step(task)
    assert torch.equal(task.loss.bank.rows, before)
    assert task.loss.step == 0
    task.train = True
    step(task)
    moved = (task.loss.bank.rows != before).any(dim=1)
    assert moved.nonzero().flatten().tolist() == [4, 9]
    assert task.loss.step == 1


def test_hooks__name_out_of_range_row(task):
    task.last_batch.sample["target"] = torch.tensor([4, -1, ROWS])
    with pytest.raises(ValueError, match="index 20 is outside the memory bank of 20 images"):
        step(task)


def test_start__sizes_bank_to_training_set(task, caplog):
    task.datasets = {"train": range(ROWS + 5), "test": range(ROWS)}
    with caplog.at_level(logging.WARNING):
        MemoryBankHook(ExchangeHook(1.0)).on_start(task)
    assert task.loss.bank.rows.shape == (ROWS + 5, DIM)
    assert task.loss.bank.batch_size == 8
    assert "25 training images: too few" in caplog.text


@pytest.mark.parametrize(("given", "expected"), [(None, 11), (3, 3)])
def test_start__defaults_to_the_runs_seed(task, given, expected):
    task.config["SEED_VALUE"] = 11
    task.loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, bank={"seed": given})
    MemoryBankHook(ExchangeHook(1.0)).on_start(task)
    assert task.loss.seed == expected
    assert torch.equal(task.loss.bank.rows, MemoryBank(ROWS, DIM, seed=expected).rows)


def test_report__logs_terms_and_row_statistics(task, caplog):
    written = {}
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.update({name: value}))
    hook = MonitorHook(1, MonitorSettings(), writer)
    step(task)
    with caplog.at_level(logging.INFO):
        hook.on_update(task)
    assert set(written) == {"PIRL/invariance", "PIRL/image", "PIRL/rows_visited"}
    assert written["PIRL/rows_visited"] == pytest.approx(2 / ROWS)
    assert written["PIRL/invariance"] == pytest.approx(task.loss.last_terms["invariance"].item())
    assert "PIRL: invariance: " in caplog.text
    assert "; rows visited: 0.1" in caplog.text


@pytest.fixture
def filling(task):
    """Before the first step: a network and two batches, one image of which is unreadable."""
    task.loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, bank={"init": "embeddings"})
    images = torch.randn(4, DIM, generator=torch.Generator().manual_seed(1))
    task.batches = [([4, -1], images[:2]), ([9, 2], images[2:])]
    task.data_iterator = iter(
        {"images": [rows_images], "index": [torch.tensor(rows)], "data_valid": [torch.ones(2)]}
        for rows, rows_images in task.batches
    )
    task.dataloaders = {"train": task.batches}
    norm = torch.nn.BatchNorm1d(DIM, affine=False)
    task.config["MODEL"] = {"MULTI_INPUT_HEAD_MAPPING": [["patches", []], ["images", []]]}

    def model(inputs):
        # like VISSL, which computes each input in the mapping
        return [norm(inputs[name]) for name, _ in task.config["MODEL"]["MULTI_INPUT_HEAD_MAPPING"]]

    task.model = model
    task.phase_idx = task.train_phase_idx = 0
    task.amp_grad_scaler = None
    task.begun_again = []
    task.recreate_data_iterator = lambda *_, **options: task.begun_again.append(options)
    return task


def test_fill__stores_embedding_per_image(filling):
    before = filling.loss.bank.rows.clone()
    MemoryBankHook(ExchangeHook(1.0)).on_phase_start(filling)
    bank = filling.loss.bank
    for rows, images in filling.batches:
        embeddings = torch.nn.functional.batch_norm(images, None, None, training=True)
        for row, expected in zip(rows, torch.nn.functional.normalize(embeddings), strict=True):
            if row >= 0:
                torch.testing.assert_close(bank.rows[row], expected)
    assert bank.visited.nonzero().flatten().tolist() == [2, 4, 9]
    left = [row for row in range(ROWS) if row not in (2, 4, 9)]
    assert torch.equal(bank.rows[left], before[left])
    assert filling.loss.step == 0
    expected = {"epoch": 0, "compute_start_iter": False, "train_phase_idx": 0}
    assert filling.begun_again == [expected]


def test_fill__stops_on_too_many_unreadable_images(filling):
    """After a lost mount, it used to read all images and name each file."""
    guard = ExchangeHook(max_share=0.02)
    source = SimpleNamespace(unreadable_paths=list)
    data = type("Data", (list,), {"disk": SimpleNamespace(source=source)})
    filling.datasets = {"train": data([None] * 4)}
    filling.config = AttrDict({**filling.config, "DATA": {"TRAIN": {"DATA_PATHS": ["photos"]}}})
    batches = list(filling.data_iterator)
    batches[0]["data_valid"] = [torch.tensor([1, 0])]
    filling.data_iterator = iter(batches)
    with pytest.raises(Refused, match=r"1 of the last 2 images \(50%\)"):
        MemoryBankHook(guard).on_phase_start(filling)
    assert next(filling.data_iterator) is batches[1]


def test_fill__ends_after_current_batch_on_signal(filling, monkeypatch):
    exchange = ExchangeHook(1.0)
    filling.datasets = {"train": range(4)}
    monkeypatch.setattr(watcher, "current", lambda: watcher.Watcher(requested=signal.SIGTERM))
    with pytest.raises(SystemExit) as ended:
        MemoryBankHook(exchange).on_phase_start(filling)
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(list(filling.data_iterator)) == 1


def test_fill__applies_only_to_new_banks_on_request(filling):
    loss = filling.loss
    before = loss.bank.rows.clone()
    filling.train = False
    MemoryBankHook(ExchangeHook(1.0)).on_phase_start(filling)
    filling.train, loss.config.bank.init = True, "random"
    MemoryBankHook(ExchangeHook(1.0)).on_phase_start(filling)
    loss.config.bank.init, loss.bank.visited[7] = "embeddings", True  # a resumed run
    MemoryBankHook(ExchangeHook(1.0)).on_phase_start(filling)
    assert torch.equal(loss.bank.rows, before)
    assert filling.begun_again == []
