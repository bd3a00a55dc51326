"""Reports from several ranks, and what a run shows on the console."""

import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.evaluation.next_commands import next_commands, program_name
from pirl_plugin.vissl.adapters.method import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.monitor import MonitorHook
from pirl_plugin.vissl.hooks.progress import PROGRESS, ProgressHook
from pirl_plugin.vissl.run.pirl_task import hooks_of_run
from pirl_plugin.vissl.sections import MonitorSettings
from tests.helpers.configs import compose
from tests.helpers.processes import run_in_processes
from tests.helpers.tasks import FakeTask

ROWS, DIM = 20, 4
TARGETS = ([4, -1, 9], [1, 2, 3])  # per rank; five valid rows in all


def _report(rank, world_size, placement):
    """Return what a rank writes after a step, and its own terms."""
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, bank={"placement": placement})
    generator = torch.Generator().manual_seed(rank)
    output = [torch.randn(3, DIM, generator=generator) for _ in range(2)]
    target, written = torch.tensor(TARGETS[rank]), {}
    loss([one.requires_grad_() for one in output], target)
    loss.update(target, output[-1])
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.update({name: value}))
    hook = MonitorHook(2, MonitorSettings(), writer)
    last_batch = SimpleNamespace(loss=torch.tensor(0.0))
    task = FakeTask(loss=loss, train=True, last_batch=last_batch)
    hook.on_update(task)  # step 1
    assert written == {}
    loss([one.requires_grad_() for one in output], target)
    loss.update(target, output[-1])
    hook.on_update(task)
    return written, loss.last_terms


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_report__combines_all_ranks(placement):
    results = run_in_processes(_report, 2, placement)
    (written, _), (nothing, _) = results
    assert nothing == {}
    for name in ("invariance", "image"):
        mean = sum(float(terms[name]) for _, terms in results) / 2
        assert written[f"PIRL/{name}"] == pytest.approx(mean)
    assert written["PIRL/rows_visited"] == pytest.approx(5 / ROWS)


class Images(list):
    """A VISSL data set whose paths come from the config or a catalog."""

    data_paths = ("photos",)


def task(step, epochs=2, per_epoch=4, train=True, folder="runs/a"):
    return FakeTask(
        train=train,
        num_updates=25 * step,
        max_iteration=epochs * per_epoch,
        num_train_phases=epochs,
        train_phase_idx=max(step - 1, 0) // per_epoch,
        datasets={"train": Images(range(100))},
        last_batch=SimpleNamespace(loss=torch.tensor(2.5)),
        meters=[SimpleNamespace(value={"top_1": {"res5": 45.234}})],
        checkpoint_folder=str(folder),
    )


@pytest.fixture
def clock(monkeypatch):
    """A clock moved by the test; a step may be shown once per 30 s."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(PROGRESS, "_due", 0.0)  # was set by another test's clock
    return now


def steps(hook, clock, first, last, seconds, **options):
    for step in range(first, last + 1):
        clock[0] += seconds
        hook.on_step(task(step, **options))


def test_hook__shows_epoch_rate_loss_and_time_left(clock, capsys):
    hook = ProgressHook(25, "torchvision")
    hook.on_start(task(0))
    steps(hook, clock, 1, 4, seconds=40)
    # The first step is not timed; 25 images per 40 s; 6, 5 and 4 of 8 steps are left.
    assert capsys.readouterr().out.splitlines() == [
        "training  100 images, 2 epochs, 8 steps",
        "training  50/200 images  1 images/s  0:04:00 left  epoch 1/2  loss 2.5000",
        "training  75/200 images  1 images/s  0:03:20 left  epoch 1/2  loss 2.5000",
        "training  100/200 images  1 images/s  0:02:40 left  epoch 1/2  loss 2.5000",
    ]


def test_hook__continues_counting_in_mid_epoch(clock, capsys):
    hook = ProgressHook(25, "torchvision")
    hook.on_start(task(5))
    steps(hook, clock, 6, 8, seconds=40)
    resumed, _, *shown = capsys.readouterr().out.splitlines()
    assert resumed == "resumed   at step 5 of 8"
    assert [line.split("  ")[1] for line in shown] == ["175/200 images", "200/200 images"]


def test_hook__shows_test_results_and_end(clock, capsys):
    hook = ProgressHook(25, "torchvision")
    hook.on_start(task(0))
    hook.on_phase_end(task(4, train=False))
    clock[0] += 200
    hook.on_end(task(8))
    test, *finished = capsys.readouterr().out.splitlines()[1:]
    assert test == "test      epoch 1: {'top_1': {'res5': 45.23}}"
    # Without a checkpoint there are no commands.
    assert finished == ["finished  in 0:03:20; checkpoints and log.txt in runs/a"]


def test_hook__prints_commands_for_any_images(clock, capsys, tmp_path):
    checkpoint = tmp_path / "checkpoint.torch"
    checkpoint.touch()
    hook = ProgressHook(25, "torchvision")
    finished = task(8, folder=tmp_path)
    hook.on_start(finished)
    finished.datasets["train"].data_paths = ["."]
    finished.model = torch.nn.Identity()
    hook.on_end(finished)
    *_, knn, linear, export = capsys.readouterr().out.splitlines()
    given = f"--checkpoint {checkpoint}"
    program = f"next      {program_name()}"
    assert knn == f"{program} knn {given} --data DIR"
    assert linear == f"{program} linear {given} --data DIR --out {tmp_path}/linear"
    assert export == f"{program} export {given} --to torchvision --out {tmp_path}/trunk.pth"


def test_commands__name_full_script_path_if_not_on_path(monkeypatch):
    monkeypatch.setenv("PATH", "")
    knn, *_ = next_commands(Path("a.torch")).values()
    script = Path(sysconfig.get_path("scripts"), "pirl-plugin")
    assert knn == f"{script} knn --checkpoint a.torch --data DIR"


def test_hook__gets_batch_and_export_from_config(monkeypatch):
    config = compose("config=pretrain/pirl/jigsaw_8node")
    monkeypatch.setenv("PIRL_PLUGIN_CONSOLE", "page")
    for trunk, loss, export_to in (
        ("resnet", "pirl_loss", "torchvision"),
        ("pirl_timm", "pirl_loss", "timm"),
        ("pirl_timm", "cross_entropy", None),
    ):
        config.MODEL.TRUNK.NAME = trunk
        config.LOSS.name = loss
        *_, hook = hooks_of_run(lambda config: [], config)
        assert (hook._images_per_step, hook._export_to) == (8 * 4 * 32, export_to)
