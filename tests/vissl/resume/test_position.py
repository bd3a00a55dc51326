"""Where in an epoch a run resumes."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.system.watcher import waiting
from pirl_plugin.vissl.resume.position import (
    ResumingSampler,
    begin_epoch,
    restore_schedule_position,
    samples_done,
    steps_done,
)
from tests.helpers.configs import compose
from tests.helpers.processes import run_in_processes
from tests.helpers.tasks import FakeTask

PATHS = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]


def stopped_run(steps_per_epoch=3, phase=3):
    """A run stopped in epoch 3 after 20 images, in batches of 8, with epochs 0 to 2 completed."""
    section = {"samples_done": 20}
    return FakeTask(
        checkpoint={"train_phase_idx": 2, "classy_state_dict": {"hooks": {SECTION: section}}},
        train_phase_idx=phase,
        datasets={"train": SimpleNamespace(get_global_batchsize=lambda: 8)},
        dataloaders={"train": range(steps_per_epoch)},
        num_updates=-1,
        where=0.0,
        optimizer=SimpleNamespace(on_epoch=lambda where: None),
    )


@pytest.mark.parametrize(("phase", "samples", "steps"), [(2, 20, 2), (3, 20, 2), (4, 0, 0)])
def test_images_done__refer_to_interrupted_epoch(phase, samples, steps):
    task = stopped_run(phase=phase)
    assert samples_done(task) == samples
    assert steps_done(task, "train") == steps
    assert steps_done(task, "test") == 0


def test_images_done__are_at_most_one_epoch_at_this_batch_size():
    assert samples_done(stopped_run(steps_per_epoch=2)) == 16


def test_schedule__continues_at_the_same_image():
    task = stopped_run(phase=2)
    restore_schedule_position(task)
    assert task.num_updates == 3 * 3 * 8 + 20


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize("num_images", [1, 4, 5, 8, 9])
def test_epoch__covers_all_images_except_last_batch_of_one(num_images, batch):
    sampler = ResumingSampler(range(num_images), batch, num_replicas=1, rank=0, shuffle=False)
    rows = list(range(num_images))
    batches = [rows[start : start + batch] for start in range(0, num_images, batch)]
    if len(batches) > 1 and batch > 1 and len(batches[-1]) == 1:
        batches.pop()
    for skipped in range(len(batches)):
        sampler.set_start_iter(skipped)
        assert list(sampler) == [row for rows in batches[skipped:] for row in rows]
        assert len(sampler) == sum(map(len, batches))


class Numbers(list):
    """A data set with a run's configuration."""

    cfg = None
    data_objs = ()

    @property
    def disk(self):
        return SimpleNamespace(source=SimpleNamespace(waiting=waiting))


def _rows_read(rank, world_size):
    """Return rows read in training and in feature extraction, for 9 images in batches of 4."""
    from vissl.trainer.trainer_main import build_task

    import pirl_plugin.vissl.run.pirl_task  # noqa: F401  (it registers the task)

    rows = []
    for name in ("linear_imagenet1k", "svm_voc07"):
        config = compose(f"config=benchmark/pirl/{name}", *PATHS)
        config.DATA.TRAIN.update(BATCHSIZE_PER_REPLICA=4, DROP_LAST=False)
        config.DATA.TRAIN.COLLATE_FUNCTION = "default_collate"
        config.DATA.NUM_DATALOADER_WORKERS = 0
        config.MACHINE.DEVICE = "cpu"
        task = build_task(config)
        task.datasets = {"train": Numbers(range(9))}
        task.datasets["train"].cfg = config
        task.available_splits = ["TRAIN"]
        loader = task.build_dataloaders(pin_memory=False)["train"]
        rows.append(len(torch.cat(list(loader))))
    return rows


def test_extraction__reads_every_image():
    """Training drops a last batch of one image, because BatchNorm may need two values."""
    assert run_in_processes(_rows_read, 1) == [[8, 9]]


@pytest.mark.parametrize(("phase", "num_images"), [(3, 92), (4, 96)])
def test_epoch__begins_with_its_rate_and_image_count(phase, num_images):
    task = stopped_run(phase=phase)
    rates_at = []
    task.optimizer.on_epoch = lambda where: rates_at.append(task.num_updates)
    begin_epoch(task)
    assert rates_at == [24 * phase]
    assert task.num_updates == num_images
