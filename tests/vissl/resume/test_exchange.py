"""A run stops on a non-finite loss or too many unreadable images."""

import logging
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.resume.exchange import ExchangeHook
from pirl_plugin.vissl.sections import RunSettings, read_section
from tests.helpers.tasks import FakeTask


def task_of(images, bad=()):
    source = SimpleNamespace(unreadable_paths=lambda: bad)
    data = type("Data", (list,), {"disk": SimpleNamespace(source=source)})
    train = SimpleNamespace(DATA_PATHS=["photos"])
    return FakeTask(
        train=True,
        device=torch.device("cpu"),
        datasets={"train": data([None] * images)},
        config=SimpleNamespace(DATA={"TRAIN": train}),
        losses=[1.0],
        images=NetworkConfig(),
    )


def test_non_finite_loss__stops_run_and_names_step():
    hook, task = ExchangeHook(0.05), task_of(4)
    task.last_batch = SimpleNamespace(sample={})
    hook.on_loss_and_meter(task)
    task.losses = [float("nan")]
    task.iteration = 7
    task.loss = None
    with pytest.raises(FloatingPointError, match="The loss is not finite in step 7, "):
        hook.on_loss_and_meter(task)


@pytest.mark.parametrize(
    ("images", "steps", "sentence"),
    [
        # 10 % of 60 images, in epochs of 6 batches: known after 4 of them.
        (60, [(1, 10)] * 12, "4 of the last 40 images (10%)"),
        (3, [(3, 3)], "3 of the last 3 images (100%)"),
        (100, [(2, 8), *[(0, 8)] * 11, (0, 4)] * 9, None),  # 2 % throughout, all in one batch
        (100, [(4, 25), (0, 25), (0, 25), (0, 25)] * 9, None),
        (20, [(1, 20)] * 9, None),  # 5 % is the limit
        (20_000, [(1, 25)] * 900, None),  # 4 %, over more images than the window holds
        # The mount is lost after 20,000 images: 5 % of 10,000.
        (20_000, [(0, 250)] * 80 + [(250, 250)] * 3, "750 of the last 750 images (100%)"),
    ],
)
def test_unreadable__stops_at_given_share_of_images(images, steps, sentence):
    hook, task = ExchangeHook(0.05), task_of(images)
    seen = None
    for bad, batch in steps:
        task.last_batch = SimpleNamespace(
            sample={"data_valid": [torch.tensor([0] * bad + [1] * (batch - bad))]}
        )
        try:
            hook.on_loss_and_meter(task)
        except Refused as error:
            seen = str(error)
            break
    if sentence is None:
        assert seen is None
    else:
        assert f"photos: {sentence} are unreadable" in seen


def test_unreadable__test_images_do_not_dilute_training_images():
    hook, task = ExchangeHook(0.05), task_of(20)
    task.datasets["test"] = task.datasets["train"]
    batch = SimpleNamespace(sample={"data_valid": torch.ones(10)})
    for task.train in (True, False):
        task.last_batch = batch
        hook.on_loss_and_meter(task)
    assert hook._read == {"train": (0, 10), "test": (0, 10)}


def test_settings__refuse_unknown_keys():
    section = {"timeout": 5}
    with pytest.raises(ValueError, match=r"PIRL_RUN.timeout: unknown key"):
        read_section(RunSettings, {"HOOKS": {"PIRL_RUN": section}}, "HOOKS.PIRL_RUN")


def test_unreadable__logs_each_file_once(caplog):
    bad = ["a.jpg"]
    hook, task = ExchangeHook(0.05), task_of(20, bad)
    with caplog.at_level(logging.WARNING):
        hook.on_phase_end(task)
        bad.append("b.jpg")
        hook.on_phase_end(task)
        hook.on_phase_end(task)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["a.jpg", "b.jpg"]
