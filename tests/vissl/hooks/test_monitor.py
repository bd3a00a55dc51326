"""Measures after an epoch, on any number of ranks."""

import json
import logging
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pirl_plugin.evaluation.measures import LINE_KEY as KEY
from pirl_plugin.evaluation.measures import measure_bank
from pirl_plugin.vissl.adapters.method import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.monitor import MonitorHook, read_labels
from pirl_plugin.vissl.sections import MonitorSettings
from tests.helpers.processes import run_in_processes
from tests.helpers.tasks import FakeTask

ROWS, DIM, BATCH = 60, 8, 12
LABELS = np.arange(ROWS) // 20


class Lines:
    """Lines that VISSL's loss logger writes to stdout.json."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append(json.loads(text))

    def flush(self):
        """Do nothing: the output is not buffered."""


def make_task(loss):
    source = SimpleNamespace(groups=lambda: None, labels=lambda: LABELS)
    attributes = {"data_limit": -1, "disk": SimpleNamespace(source=source)}
    data = type("Data", (list,), attributes)([None] * ROWS)
    return FakeTask(loss=loss, train=True, datasets={"train": data}, iteration=0, train_phase_idx=0)


def make_outputs(lines=None, written=None):
    """Return the outputs that VISSL keeps open."""
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.update({name: value}))
    return None if written is None else writer, lines


def epoch(hook, task, rank=0, world_size=1, steps=5, seed=0, same=0.0):
    """Run a few steps of VISSL's loop around the loss; ``same`` sets how similar embeddings are."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        target = torch.randperm(ROWS, generator=generator)[:BATCH]
        target[1] = -1  # an unreadable image
        output = torch.randn(2, BATCH, DIM, generator=generator) * (1 - same) + same
        mine = slice(rank * BATCH // world_size, (rank + 1) * BATCH // world_size)
        value = task.loss(list(output[:, mine].clone().requires_grad_()), target[mine])
        task.last_batch = SimpleNamespace(loss=value)
        task.loss.update(target[mine], output[1, mine])
        hook.on_update(task)
        task.iteration += 1
    hook.on_phase_end(task)
    task.train_phase_idx += 1


def make_loss(placement="replicated"):
    return PIRLLoss(
        ROWS,
        embedding_dim=DIM,
        num_negatives=7,
        norm_constant=60.0,
        bank={"placement": placement},
    )


def test_hook__measures_rows():
    lines, written = Lines(), {}
    task = make_task(make_loss())
    hook = MonitorHook(100, MonitorSettings(rows=20, k=3), *make_outputs(lines, written))
    epoch(hook, task)
    (line,) = lines.lines
    assert (line["ep"], line["iter"]) == (0, 4)
    rows = torch.arange(20) * 3  # evenly spaced over the data set
    expected = measure_bank(task.loss.bank.rows[rows], torch.as_tensor(LABELS)[rows], k=3)
    for name, (value, chance) in expected.items():
        assert line[KEY][name]["value"] == pytest.approx(value, rel=1e-5, abs=1e-6), name
        assert line[KEY][name]["chance"] == pytest.approx(chance, rel=1e-5, abs=1e-6), name
    assert written["PIRL_monitor/knn_top1"] == line[KEY]["knn_top1"]["value"]
    assert written["PIRL_monitor/knn_top1_chance"] == line[KEY]["knn_top1"]["chance"]


def measured_in(rank, world_size, placement):
    """Return the logged measures for two epochs with the given bank placement."""
    torch.manual_seed(0)
    loss = make_loss(placement)
    lines = Lines()
    task = make_task(loss)
    hook = MonitorHook(100, MonitorSettings(rows=25, k=3), *make_outputs(lines))
    for seed in range(2):
        epoch(hook, task, rank, world_size, seed=seed)
    return lines.lines


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_processes__measure_the_same_as_one(placement):
    expected = measured_in(0, 1, "replicated")
    first, second = run_in_processes(measured_in, 2, placement)
    assert second == []  # only the first rank writes
    assert len(first) == len(expected) == 2
    for line, other in zip(first, expected, strict=True):
        assert set(line[KEY]) == set(other[KEY])
        for name, values in line[KEY].items():
            assert values == pytest.approx(other[KEY][name], rel=1e-4, abs=1e-5), name


def test_hook__keeps_random_states_and_loss():
    def trained(measures):
        task = make_task(make_loss())
        torch.manual_seed(3), np.random.seed(3), random.seed(3)
        hook = MonitorHook(100, MonitorSettings(), *make_outputs())
        if not measures:
            hook.on_phase_end = lambda task: None
        for seed in range(2):
            epoch(hook, task, seed=seed)
        return task.loss.state_dict(), (torch.rand(3), np.random.rand(3), random.random())

    (state, drawn), (expected, expected_drawn) = trained(True), trained(False)
    assert torch.equal(state["bank.rows"], expected["bank.rows"])
    assert torch.equal(drawn[0], expected_drawn[0])
    assert (drawn[1] == expected_drawn[1]).all()
    assert drawn[2] == expected_drawn[2]


def test_hook__reports_collapse(caplog):
    task = make_task(make_loss())
    hook = MonitorHook(100, MonitorSettings(), *make_outputs())
    with caplog.at_level(logging.WARNING):
        epoch(hook, task)
        assert caplog.text == ""
        for seed in range(30):  # the rows follow the embeddings
            epoch(hook, task, seed=seed, same=1.0)
    assert "The embeddings have collapsed" in caplog.text


def test_hook__measures_at_training_epoch_interval():
    task, lines = make_task(make_loss()), Lines()
    hook = MonitorHook(100, MonitorSettings(every=2), *make_outputs(lines))
    for _ in range(4):
        epoch(hook, task)
    task.train = False
    hook.on_phase_end(task)
    assert [line["ep"] for line in lines.lines] == [1, 3]


def test_labels__come_from_the_data_if_available():
    data = make_task(make_loss()).datasets["train"]
    rows = torch.tensor([0, 20, 40])
    assert read_labels(data, rows)[0].tolist() == [0, 1, 2]
    data.disk.source.labels = lambda: np.zeros((ROWS, 3))  # several classes per image
    assert read_labels(data, rows) == (None, None)


def test_labels__are_absent_for_images_drawn_by_vissl():
    data = make_task(make_loss()).datasets["train"]
    data.data_limit = 10
    assert read_labels(data, torch.tensor([1])) == (None, None)
