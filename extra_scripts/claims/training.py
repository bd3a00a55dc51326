"""Shared by scripts that compare methods: images, training loop, timing."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peer_methods import Method
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

import pirl_plugin as pirl
from pirl_plugin.system.files import atomic_write

# Rates are for 32 images, and are scaled with the batch (Goyal et al. 2017).
REFERENCE_BATCH = 32

Photos = list[tuple[Image.Image | Tensor, int]]
"""RGB images or tensors (C, H, W) with another dtype, and labels."""


@dataclass(frozen=True)
class Length:
    """How long a method trains.

    Attributes:
        images: number of images seen.
        seconds: wall time.
        cpu_seconds: processor time.
        loss: loss on the last batch.
    """

    images: int
    seconds: float
    cpu_seconds: float
    loss: float


@dataclass(frozen=True)
class Saving:
    """Where a long run saves what it has, so that it can be interrupted at any time.

    Attributes:
        state: file for everything that training changes, from which an interrupted run resumes with
            the same result, bit for bit.
        networks: epoch → file for the trunk after it.
        every: epochs between two states.
    """

    state: Path
    networks: Mapping[int, Path]
    every: int = 5


def save_tensors(content: object, file: Path) -> None:
    """Write a file that is complete or absent, also after a power failure."""
    with atomic_write(file) as stream:
        torch.save(content, stream)


def decoded(folder: Path, side: int | None = None) -> tuple[list[str], Photos]:
    """Return classes, decoded images and labels from ``folder/CLASS/*``.

    Arrays (H, W, C) in ``.npy`` files keep channels, dtype and size.

    Images are decoded only once, so that a run's time is the method's.

    Args:
        folder: folder with one subfolder per class.
        side: images with a longer shorter side are reduced to it, in pixels; JPEGs are decoded at a
            similar scale, so that large photos need little memory and time.
    """

    def load(path: str) -> Image.Image | Tensor:
        if path.endswith(".npy"):
            return torch.from_numpy(np.load(path, allow_pickle=False)).permute(2, 0, 1)
        with Image.open(path) as image:
            if side is not None:
                # Decode a JPEG at 1/2, 1/4 or 1/8 size if that is still large enough.
                scale = side / min(image.size)
                enough = (round(image.width * scale), round(image.height * scale))
                image.draft("RGB", enough)
                if scale < 1:
                    return image.convert("RGB").resize(enough, Image.Resampling.BICUBIC)
            return image.convert("RGB")

    images = DatasetFolder(folder, load, (*IMG_EXTENSIONS, ".npy"))
    return images.classes, list(images)


def labels_of(photos: Photos) -> NDArray[np.int64]:
    """Return the labels, (N,)."""
    return np.array([label for _, label in photos])


def channels_last(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert a network's images (B, C, S, S) to channels-last; patches keep their format."""
    images, *others = inputs
    if images.ndim == 4:
        images = images.contiguous(memory_format=torch.channels_last)
    return (images, *others)


def fast_precision() -> str:
    """Return ``bfloat16`` if the processor has instructions for it, otherwise ``float32``.

    Without them, bfloat16 takes three times as long as float32.
    """
    file = Path("/proc/cpuinfo")  # on Linux
    flags = file.read_text().split() if file.is_file() else []
    return "bfloat16" if {"avx512_bf16", "amx_bf16", "bf16"} & {*flags} else "float32"


def processor_seconds() -> float:
    """Return the processor seconds of this process and its ended loader workers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def loader_of(
    images: Photos, method: Method, batch: int, seed: int, workers: int
) -> DataLoader[Any]:
    """Return a loader for a method's views, in an order that depends on the seed."""
    data = pirl.ImageDataset(images, method.views, seed=seed)
    return DataLoader(
        data,
        batch,
        shuffle=True,
        drop_last=len(data) > batch,
        collate_fn=pirl.collate_views,
        num_workers=workers,
        generator=torch.Generator().manual_seed(seed),
    )


def train(
    method: Method,
    loader: DataLoader[Any],
    epochs: int,
    rate: float,
    *,
    device: str = "cpu",
    autocast: bool = False,
    fill: bool = True,
    saving: Saving | None = None,
) -> Length:
    """Train a method with SGD, a cosine schedule to 0, and a bank of embeddings.

    Args:
        method: the method, on the device; parameters without gradients stay unchanged.
        loader: loader from :func:`loader_of`.
        epochs: number of epochs.
        rate: learning rate for a batch of 32 images.
        device: ``cpu`` or ``cuda``.
        autocast: whether to compute in bfloat16.
        fill: whether to start with a bank of embeddings.
        saving: where to save the state, and resume from it; None: nowhere.
    """
    steps = epochs * len(loader)
    optimizer = torch.optim.SGD(
        [parameter for parameter in method.trained.parameters() if parameter.requires_grad],
        lr=rate * (loader.batch_size or 1) / REFERENCE_BATCH,
        momentum=0.9,
        weight_decay=1e-4,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    changed: dict[str, Any] = {"method": method, "optimizer": optimizer, "schedule": schedule}
    order = loader.generator
    first_epoch = 0
    before = Length(images=0, seconds=0.0, cpu_seconds=0.0, loss=0.0)
    begin = time.perf_counter()
    begin_cpu = processor_seconds()
    if saving is not None and saving.state.is_file():
        state = torch.load(saving.state, weights_only=True)
        for name, part in changed.items():
            part.load_state_dict(state[name])
        order.set_state(state["order"])
        first_epoch = state["epoch"]
        before = Length(**state["length"])
    elif fill:
        method.before_training(loader, device)

    def length() -> Length:
        return Length(
            images=images,
            seconds=round(before.seconds + time.perf_counter() - begin, 1),
            cpu_seconds=round(before.cpu_seconds + processor_seconds() - begin_cpu, 1),
            loss=round(loss.item(), 4),
        )

    step = first_epoch * len(loader)
    images = before.images
    for epoch in range(first_epoch, epochs):
        loader.dataset.set_epoch(epoch)  # type: ignore[attr-defined]
        for sample in loader:
            sample = {key: value.to(device) for key, value in sample.items()}
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = method.loss(sample, step / steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            method.after_step(sample)
            step += 1
            images += len(sample["index"])
        done = epoch + 1
        if saving is None or done == epochs:
            continue
        if done in saving.networks:
            save_tensors(method.trained["trunk"].state_dict(), saving.networks[done])
        if done % saving.every == 0:
            state = {name: part.state_dict() for name, part in changed.items()}
            state |= {"order": order.get_state(), "epoch": done, "length": asdict(length())}
            save_tensors(state, saving.state)
    return length()


def measure_costs(
    runs: Mapping[str, Callable[[], object]], images: int, rounds: int = 5
) -> dict[str, float]:
    """Measure the processor milliseconds per image: the median over several rounds.

    All runs take turns in each round, so that other work on the machine affects all alike.

    Args:
        runs: name → a function that processes the images once.
        images: number of images.
        rounds: number of measured rounds, after one warm-up round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            begin = processor_seconds()
            run()
            if number > 0:
                seconds[name].append(processor_seconds() - begin)
    return {
        name: round(1000 * statistics.median(values) / images, 2)
        for name, values in seconds.items()
    }
