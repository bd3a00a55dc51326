"""A run stops on a loss that is not finite, and where too many images cannot be read."""

import logging
import re
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.hooks.faults import ExchangeHook, FiniteHook
from pirl_plugin.vissl.run.sections import RunSettings, read_section
from tests.helpers.processes import run_in_processes
from tests.helpers.tasks import FakeTask


def test_finite__names_the_step():
    task = FakeTask(iteration=7, losses=[float("nan")])
    with pytest.raises(FloatingPointError, match="the loss is not finite, step 7: "):
        FiniteHook().on_loss_and_meter(task)
    task.losses = [1.0]
    FiniteHook().on_loss_and_meter(task)


def _start(rank, world_size):
    task = FakeTask(datasets={"train": range(20 + rank)})
    try:
        ExchangeHook(1.0).on_start(task)
    except Refused as error:
        return str(error)


def test_ranks__with_other_numbers_of_images_are_refused():
    for sentence in run_in_processes(_start, 2):
        assert sentence.startswith("config.DATA.TRAIN.DATA_PATHS: expected the same images on all")
        assert re.search("20 (images )?on rank 0", sentence)
        assert re.search("21 (images )?on rank 1", sentence)


def task_of(images=20, bad=()):  # a window of 100
    data = type("Data", (list,), {"data_objs": [SimpleNamespace(unreadable_paths=lambda: bad)]})
    train = SimpleNamespace(DATA_PATHS=["photos"])
    return FakeTask(
        train=True,
        device=torch.device("cpu"),
        datasets={"train": data([None] * images)},
        config=SimpleNamespace(DATA={"TRAIN": train}),
    )


@pytest.mark.parametrize(
    ("steps", "share", "stops"),
    [
        ([(2, 8)] + [(0, 8)] * 99, 0.05, None),  # broken files among the first stop nothing
        ([(0, 8)] * 50 + [(8, 8)] * 50, 0.05, 50),  # a mount that has gone: at once
        ([(1, 25)] * 100, 0.05, None),  # 4 % broken throughout
        ([(1, 10)] * 100, 0.05, 6),  # 10 %: 1 − 0.9⁷ = 0.52 of it after 7 steps
        ([(5, 100), (0, 100), (5, 100)], 0.05, None),
        ([(8, 8)] * 100, 1.0, None),
    ],
)
def test_unreadable__stops_at_its_share_of_the_last_100_images(steps, share, stops):
    hook, task = ExchangeHook(share), task_of()
    hook.on_phase_start(task)
    for number, (bad, images) in enumerate(steps):
        task.last_batch = SimpleNamespace(
            sample={"data_valid": [torch.tensor([0] * bad + [1] * (images - bad))]}
        )
        if number == stops:
            with pytest.raises(Refused, match=r"\['photos'\]: \d+% of the last 100 images"):
                hook.on_loss_and_meter(task)
            return
        hook.on_loss_and_meter(task)
    assert stops is None


def test_settings__are_refused_by_name():
    section = {"timeout": 5}
    with pytest.raises(ValueError, match=r"PIRL_RUN.timeout: expected a known key"):
        read_section(RunSettings, {"HOOKS": {"PIRL_RUN": section}}, "HOOKS.PIRL_RUN")


def test_unreadable__names_each_file_once_in_the_log(caplog):
    bad = ["a.jpg"]
    hook, task = ExchangeHook(0.05), task_of(bad=bad)
    with caplog.at_level(logging.WARNING):
        hook.on_phase_end(task)
        bad.append("b.jpg")
        hook.on_phase_end(task)
        hook.on_phase_end(task)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["a.jpg", "b.jpg"]
