"""At what size and with which loss the claims are measured: network, images, batch, recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Recipe:
    """Settings of ``LOSS.pirl_loss`` that PIRL and NPID share.

    Attributes:
        about: a phrase for people.
        lambda_invariance: of PIRL; NPID's is 0.
        temperature: τ.
        bank_init: the rows that the memory bank begins with.
    """

    about: str
    lambda_invariance: float
    temperature: float
    bank_init: str


RECIPES = {
    "paper": Recipe(
        "λ = 0.5 and a bank of random rows as in the paper, τ = 0.1", 0.5, 0.1, "random"
    ),
    "quick_jigsaw": Recipe(
        "λ = 0.75, τ = 0.2, a bank of embeddings, as that config has them", 0.75, 0.2, "embeddings"
    ),
}


@dataclass(frozen=True)
class Scale:
    """One size of experiment. All methods of a scale share it.

    Attributes:
        about: a sentence for people.
        model: overlay of ``config/pirl/models``, and of ``config/pirl/linear``.
        machine: overlay of ``config/pirl/machines``.
        trunk: ``MODEL.TRUNK.PIRL_RESNET``.
        features: channels of res5.
        image_size: side of I, pixels.
        patches_crop_size: side of the crop that is cut into patches, pixels.
        patch_size: side of a patch, pixels.
        batch: images a step.
        rate: learning rate at the start; it falls to a thousandth of it as a cosine, by step.
        negatives: N of PIRL and NPID.
        more_negatives: N of the longer NPID.
        images_seen: the budget of a model of the main comparison.
        cpu_time: whether ``seconds`` are CPU seconds; otherwise wall-clock.
        linear: further overrides of the linear benchmark.
        recipe: of the loss.
    """

    about: str
    model: str
    machine: str
    trunk: dict[str, float]
    features: int
    image_size: int
    patches_crop_size: int
    patch_size: int
    batch: int
    rate: float
    negatives: int
    more_negatives: int
    images_seen: int
    cpu_time: bool
    linear: tuple[str, ...] = ()
    recipe: Recipe = RECIPES["paper"]


SCALES = {
    "quick": Scale(
        about="ResNet-10 at half width, 64-px images, nine 24-px patches, on one CPU core",
        model="resnet10",
        machine="cpu",
        trunk={"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5},
        features=256,
        image_size=64,
        patches_crop_size=96,
        patch_size=24,
        batch=32,
        rate=0.03,
        negatives=1024,
        more_negatives=4096,
        images_seen=240_000,
        cpu_time=True,
    ),
    "gpu": Scale(
        about="ResNet-18, 128-px images, nine 48-px patches, on one GPU",
        model="resnet18",
        machine="1gpu",
        trunk={"DEPTH": 18, "WIDTH_MULTIPLIER": 1},
        features=512,
        image_size=128,
        patches_crop_size=192,
        patch_size=48,
        batch=256,
        rate=0.06,
        negatives=2048,
        more_negatives=4096,
        images_seen=2_000_000,
        cpu_time=False,
        linear=(
            "+config/pirl/machines=1gpu",
            "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=256",
            "config.DATA.TEST.BATCHSIZE_PER_REPLICA=256",
            "config.DATA.TRAIN.TRANSFORMS.0.size=128",
            "config.DATA.TEST.TRANSFORMS.0.size=146",
            "config.DATA.TEST.TRANSFORMS.1.size=128",
        ),
    ),
}


def scale_with(name: str, recipe: str) -> Scale:
    """A size of experiment with a recipe of the loss, by their names."""
    return replace(SCALES[name], recipe=RECIPES[recipe])


def autocast(scale: Scale, processor: Path = Path("/proc/cpuinfo")) -> str:
    """What our methods' networks run in: ``bfloat16``, or ``null`` where that would be slower.

    A processor without instructions for bfloat16 takes two to seven times as long in it; a GPU
    before compute capability 8 emulates it.

    Args:
        scale: of the comparison.
        processor: the kernel's description of it.
    """
    if scale.machine != "cpu":
        import torch

        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if supported else "null"
    found = processor.is_file() and "avx512_bf16" in processor.read_text()
    return "bfloat16" if found else "null"
