"""Compare PIRL with NPID on 100,000 images, on one GPU, in commands of under ten minutes.

    python extra_scripts/claims/scale.py --data DIR --out OUT --minutes 9

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``, such as Tiny-ImageNet or Imagenette. Both
methods train a ResNet-18 in bfloat16, pass by pass in turn, on the same images. After ``--minutes``
the command saves both and measures them: kNN, and a linear classifier, at the last layer and at the
layer that is best by leave-one-out. The same command goes on from there, until both have made
``--passes``. ``OUT/scale.json`` has the accuracies after each command, the images a second of each
pass, and the rates of the loader alone and of the device alone, which tell what limits the run.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layer_accuracy import LAST, accuracies, layer_features
from peer_methods import METHODS, Method
from torch.utils.data import DataLoader
from training import REFERENCE_BATCH, Photos, channels_last, decoded, loader_of

import pirl_plugin as pirl
from pirl_plugin.system.files import write_json
from pirl_plugin.system.processes import processor_name

COMPARED = ("pirl_jigsaw", "npid")
RATE = 0.03  # of 32 images
MEASURING_SECONDS = 60  # for each method, kept free at the end
TIMED_STEPS = 30
MEASURED_IMAGES = 5000  # at most, of train and of val


class Run:
    """A method's network, heads, bank and optimiser, and the pass that it has reached.

    Args:
        name: a key of ``METHODS``.
        photos: training images.
        options: those of the command.
    """

    def __init__(self, name: str, photos: Photos, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.name = name
        self.device = options.device
        self.autocast = options.device == "cuda"
        self.trunk = pirl.WideResNet(options.depth, width=options.width)
        self.trunk.register_forward_pre_hook(channels_last)
        self.trunk.to(memory_format=torch.channels_last)
        width = self.trunk(torch.zeros(2, 3, 64, 64)).shape[1]
        self.method: Method = METHODS[name](self.trunk, width, len(photos), options.image_size)
        self.method.to(self.device)
        self.loader: DataLoader[Any] = loader_of(
            photos, self.method, options.batch, options.seed, options.workers
        )
        self.seed = 1000 * options.seed
        self.order = torch.Generator()
        self.loader.sampler.generator = self.order  # type: ignore[attr-defined]
        self.optimizer = torch.optim.SGD(
            self.method.trained.parameters(),
            lr=RATE * options.batch / REFERENCE_BATCH,
            momentum=0.9,
            weight_decay=1e-4,
        )
        steps = options.passes * len(self.loader)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.passes = 0
        self.file = options.out / f"{name}.pth"
        if self.file.is_file():
            saved = torch.load(self.file, map_location="cpu", weights_only=True)
            self.method.load_state_dict(saved["method"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.schedule.load_state_dict(saved["schedule"])
            self.passes = saved["passes"]
        else:
            self.method.before_training(self.loader, self.device)

    def step(self, sample: dict[str, Any]) -> None:
        """Make a step of the optimiser with a batch of the loader."""
        sample = {key: value.to(self.device, non_blocking=True) for key, value in sample.items()}
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = self.method.loss(sample, 0.0)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.method.after_step(sample)

    def make_pass(self) -> float:
        """Make a pass over the images and save; return images a second."""
        data: Any = self.loader.dataset
        data.set_epoch(self.passes)
        # The order of a pass follows from its number, so that a stopped run goes on alike.
        self.order.manual_seed(self.seed + self.passes)
        begin = time.perf_counter()
        for sample in self.loader:
            self.step(sample)
            self.schedule.step()
        self.wait()
        seconds = time.perf_counter() - begin
        self.passes += 1
        saved = {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "passes": self.passes,
        }
        partial = self.file.with_suffix(".partial")
        torch.save(saved, partial)
        partial.replace(self.file)  # a stopped command leaves the pass before
        return len(self.loader) * (self.loader.batch_size or 1) / seconds

    def rates(self) -> dict[str, float]:
        """Return images a second of the loader alone and of the device alone.

        Weights and momentum are put back after the steps.
        """
        weights = copy.deepcopy(self.method.state_dict())
        momentum = copy.deepcopy(self.optimizer.state_dict())
        count = min(TIMED_STEPS, len(self.loader))
        samples = iter(self.loader)
        sample = next(samples)  # the workers have started
        begin = time.perf_counter()
        for _ in itertools.islice(samples, count - 1):
            pass
        loading = time.perf_counter() - begin
        self.step(sample)  # the kernels are compiled
        self.wait()
        begin = time.perf_counter()
        for _ in range(count):
            self.step(sample)
        self.wait()
        training = time.perf_counter() - begin
        self.method.load_state_dict(weights)
        self.optimizer.load_state_dict(momentum)
        images = self.loader.batch_size or 1
        return {
            "loader": round((count - 1) * images / loading, 1),
            "device": round(count * images / training, 1),
        }

    def wait(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def measure(self, train: Photos, test: Photos, size: int) -> dict[str, Any]:
        """Return kNN and linear top-1, percent, of the last and of the best layer."""
        labels = np.array([label for _, label in train])
        test_labels = np.array([label for _, label in test])
        train_layers = layer_features(self.trunk, train, size, self.device)
        test_layers = layer_features(self.trunk, test, size, self.device)
        knn = accuracies(train_layers, labels, test_layers, test_labels, fractions=())["knn"]
        # A classifier takes minutes for a layer, so only these two get one.
        train_layers = {layer: train_layers[layer] for layer in dict.fromkeys([knn["layer"], LAST])}
        measured = accuracies(train_layers, labels, test_layers, test_labels, fractions=(1.0,))
        return {"knn": knn, "linear": measured["linear"]}


def machine(device: str) -> dict[str, Any]:
    """Return the card and its driver, or the processor."""
    found: dict[str, Any] = {"processor": processor_name(), "torch": torch.__version__}
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, check=True, capture_output=True, text=True).stdout
        found |= {"card": torch.cuda.get_device_name(), "driver": driver.split()[0]}
    return found


def drawn(photos: Photos) -> Photos:
    """Draw at most 5,000 photos with seed 0."""
    order = np.random.default_rng(0).permutation(len(photos))[:MEASURED_IMAGES]
    return [photos[number] for number in order]


def main() -> None:
    """Train both methods for some minutes, and measure them."""
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    parser.add_argument("--out", type=Path, required=True, help="folder of networks and results")
    parser.add_argument("--minutes", type=float, default=9, help="of a command, measures included")
    parser.add_argument("--passes", type=int, default=30, help="over the images, of all commands")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--depth", type=int, choices=(10, 18, 50), default=18, help="of the ResNet")
    parser.add_argument("--width", type=float, default=1, help="of the ResNet")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=16, help="of the loader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "scale.json"
    content: dict[str, Any] = {"rates": {}, "passes": [], "accuracies": []}
    if file.is_file():
        content = json.loads(file.read_text("utf-8"))
    side = 2 * options.image_size  # crops of half an image are not enlarged
    _, train = decoded(options.data / "train", side)
    _, test = decoded(options.data / "val", side)
    settings = {key: str(value) for key, value in vars(options).items()}
    content["setting"] = {**settings, **machine(options.device), "train_images": len(train)}

    runs = [Run(name, train, options) for name in COMPARED]
    for run in runs:
        if run.name not in content["rates"]:
            content["rates"][run.name] = run.rates()
            write_json(file, content)
    end = begin + 60 * options.minutes - MEASURING_SECONDS * len(runs)
    longest = 0.0  # seconds of a pass of both
    while runs[0].passes < options.passes and time.perf_counter() + longest < end:
        pass_begin = time.perf_counter()
        for run in runs:
            rate = round(run.make_pass(), 1)
            row = {"method": run.name, "pass": run.passes, "images_per_s": rate}
            content["passes"].append(row)
            print(json.dumps(row), flush=True)
        write_json(file, content)
        longest = max(longest, time.perf_counter() - pass_begin)
    for run in runs:
        measured = run.measure(drawn(train), drawn(test), options.image_size)
        content["accuracies"].append({"method": run.name, "passes": run.passes, **measured})
        print(json.dumps(content["accuracies"][-1]), flush=True)
        own = [row["images_per_s"] for row in content["passes"] if row["method"] == run.name]
        rates = content["rates"][run.name]
        slower = min(rates, key=lambda part: rates[part])
        mean = sum(own) / len(own) if own else math.nan
        print(f"{run.name}: {mean:,.0f} images/s; alone, the {slower} is slower: {rates}")
    write_json(file, content)


if __name__ == "__main__":
    main()
