"""A run stops where too many images cannot be read, and names the files."""

import logging
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.vissl.hooks.base import RunSettings
from pirl_plugin.vissl.hooks.unreadable import UnreadableHook


def task_of(images=100, bad=()):
    data = type("Data", (list,), {"data_objs": [SimpleNamespace(unreadable_paths=lambda: bad)]})
    train = SimpleNamespace(DATA_PATHS=["photos"])
    return SimpleNamespace(
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
        ([(1, 10)] * 100, 0.05, 5),  # 10 %
        ([(5, 100), (0, 100), (5, 100)], 0.05, None),  # looks back on 100 images and no further
        ([(8, 8)] * 100, 1.0, None),
    ],
)
def test_hook__stops_at_its_share_of_the_last_100_images(steps, share, stops):
    hook, task = UnreadableHook(share), task_of()
    hook.on_phase_start(task)
    for number, (bad, images) in enumerate(steps):
        task.last_batch = SimpleNamespace(
            sample={"data_valid": [torch.tensor([0] * bad + [1] * (images - bad))]}
        )
        if number == stops:
            with pytest.raises(RuntimeError, match=r"\['photos'\]: \d+ of the last 100 images"):
                hook.on_loss_and_meter(task)
            return
        hook.on_loss_and_meter(task)
    assert stops is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"max_unreadable": 5}, r"HOOKS.PIRL_RUN.max_unreadable = 5.*: expected a share"),
        ({"timeout_minutes": 0}, r"timeout_minutes = 0.*: expected minutes above 0"),
        ({"timeout": 5}, r"PIRL_RUN.timeout: expected a known key; .* is timeout_minutes"),
    ],
)
def test_settings__are_refused_by_name(section, message):
    with pytest.raises(ValueError, match=message):
        RunSettings.from_config({"HOOKS": {"PIRL_RUN": section}})


def test_hook__names_each_file_once_in_the_log(caplog):
    bad = ["a.jpg"]
    hook, task = UnreadableHook(0.05), task_of(bad=bad)
    with caplog.at_level(logging.WARNING):
        hook.on_phase_end(task)
        bad.append("b.jpg")
        hook.on_phase_end(task)
        hook.on_phase_end(task)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["a.jpg", "b.jpg"]
