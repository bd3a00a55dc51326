"""Batches already done are skipped, and nothing else changes."""

import os

import pytest
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from vissl.config import AttrDict

from pirl_plugin.vissl.patches import loading as vissl_loading
from pirl_plugin.vissl.patches.loading import (
    NICE,
    ResumingSampler,
    WorkerStart,
    reads_between_steps,
    resuming_sampler,
)


@pytest.mark.parametrize("rows", [12, 13, 14])
@pytest.mark.parametrize("workers", [0, 2])
def test_sampler__goes_on_in_the_order_of_the_epoch(rows, workers):
    data = list(range(rows))
    plain = [DistributedSampler(data, num_replicas=2, rank=rank) for rank in (0, 1)]
    ours = [ResumingSampler(data, batch_size=3, num_replicas=2, rank=rank) for rank in (0, 1)]
    for epoch, start in ((0, 0), (1, 1), (2, 3), (3, 0)):
        for expected, sampler in zip(plain, ours, strict=True):
            expected.set_epoch(epoch)
            sampler.set_epoch(epoch)
            sampler.set_start_iter(start)
            batches = list(DataLoader(data, sampler=sampler, batch_size=3, num_workers=workers))
            whole = list(DataLoader(data, sampler=expected, batch_size=3))
            assert [batch.tolist() for batch in batches] == [b.tolist() for b in whole[start:]]
            assert len(sampler) == len(expected)


def test_get_sampler__replaces_the_plain_one_alone():
    config = {"BATCHSIZE_PER_REPLICA": 4}

    class Other(DistributedSampler):
        pass

    other = Other(range(4), num_replicas=1, rank=0)
    assert resuming_sampler(lambda *_: other)(range(4), config) is other
    assert resuming_sampler(lambda *_: None)(range(4), config) is None


class Priorities(Dataset):
    """The niceness of the process that reads an item."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return os.nice(0)


def ignore(worker):
    pass


@pytest.mark.parametrize("on_cpu", [True, False])
def test_worker__gives_way_to_a_model_on_a_cpu(on_cpu):
    loader = DataLoader(Priorities(), num_workers=1, worker_init_fn=WorkerStart(ignore, on_cpu))
    expected = min(os.nice(0) + NICE, 19) if on_cpu else os.nice(0)
    assert [batch.item() for batch in loader] == [expected, expected]


def test_worker__goes_on_with_what_the_host_runs_in_it(monkeypatch):
    started = []
    monkeypatch.setattr(vissl_loading, "ignore_stop_signals", started.append)
    WorkerStart(lambda worker: started.append(f"host {worker}"), on_cpu=False)(3)
    assert started == [3, "host 3"]


@pytest.mark.parametrize(
    ("device", "prefetch", "transform", "expected"),
    [
        ("cpu", None, "PIRLJigsaw", True),
        ("cpu", None, "RandomResizedCrop", False),  # whose draws are the worker's
        ("cpu", True, "PIRLJigsaw", False),
        ("gpu", None, "PIRLJigsaw", False),
        ("gpu", False, "PIRLJigsaw", True),
    ],
)
def test_reads_between_steps__on_a_cpu_or_where_asked_for(device, prefetch, transform, expected):
    hooks = {} if prefetch is None else {"PIRL_INPUT": {"prefetch": prefetch}}
    config = {
        "MACHINE": {"DEVICE": device},
        "HOOKS": hooks,
        "DATA": {"TRAIN": {"TRANSFORMS": [{"name": transform}]}},
    }
    assert reads_between_steps(AttrDict(config)) == expected
