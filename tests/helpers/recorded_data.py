"""The views, draws, permutations and batches that are recorded."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from tests.helpers import subject
from tests.helpers.recording import generator, project, sample_bytes, sha

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SIZES = ((150, 200), (64, 48), (97, 33), (300, 260))  # (height, width) of the images
SEED, EPOCH = 5, 2

_CUT = {"patches_crop_size": 48, "patch_size": 12}
_IMAGE = {"image_size": 40}
_BLUR = {"blur_p": 1.0, "equalize_p": 0.5, "grayscale_p": 0.5}
_JIGSAWS = {
    "small": {**_IMAGE, **_CUT},
    "100 permutations": {**_IMAGE, **_CUT, "num_permutations": 100},
    "flip image": {**_IMAGE, **_CUT, "flip": "image"},
    "flip none": {**_IMAGE, **_CUT, "flip": "none"},
    "blur": {**_IMAGE, **_CUT, **_BLUR},
    "grid 2": {**_IMAGE, "patches_crop_size": 48, "patch_size": 20, "grid": 2},
}
_PLAIN = {
    "small": _IMAGE,
    "blur": {**_IMAGE, "photometric": _BLUR},
    "crops of at least half": {**_IMAGE, "image_scale": [0.5, 1.0]},
}
_PUZZLES = {
    name: {"num_permutations": 20, **{k: v for k, v in keys.items() if k != "image_size"}}
    for name, keys in _JIGSAWS.items()
}
_TRANSFORMS: dict[str, dict[str, dict[str, Any]]] = {
    "PIRLJigsaw": {"default": {}, **_JIGSAWS},
    "PIRLRotationJigsaw": {"default": {}, **_JIGSAWS},
    "PIRLRotation": {"default": {}, **_PLAIN},
    "PIRLImage": {"default": {}, **_PLAIN},
    "PredictJigsaw": {"default": {"num_permutations": 2000}, **_PUZZLES},
    "PredictRotation": {"default": {}, **_PLAIN},
}

VIEWS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{name}, {options}, {backend}": (name, {**parameters, "backend": backend})
    for name, cases in _TRANSFORMS.items()
    for (options, parameters), backend in itertools.product(cases.items(), ("fused", "pil"))
}


def photo(height: int, width: int, seed: int) -> Tensor:
    """Smooth areas and grain, by integer arithmetic alone: uint8 (3, H, W), channels-last."""
    rng = generator(seed)
    coarse = rng.integers(0, 224, (9, 12, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST))
    ramp = np.add.outer(np.arange(height), np.arange(width))[..., None] % 16
    grain = rng.integers(0, 16, smooth.shape)
    return torch.from_numpy((smooth + ramp + grain).astype(np.uint8)).permute(2, 0, 1)


def record_views(name: str) -> dict[str, Any]:
    """Record the views of four images, and of one that could not be read."""
    transform, parameters = VIEWS[name]
    apply = subject.make_views(transform, **parameters)
    samples = [
        apply(photo(*size, seed=index), SEED, EPOCH, index)["data"]
        for index, size in enumerate(SIZES)
    ]
    black = apply(photo(*SIZES[0], seed=0), SEED, EPOCH, 0, valid=False)["data"]
    record: dict[str, Any] = {"exact": {}, "bits": {}, "samples": {}}
    for key in samples[0]:
        tensors = [sample[key] for sample in samples]
        record["exact"][f"placeholder of {key}"] = sha(black[key])[:16]
        if key == "label":
            record["exact"][key] = [int(label) for label in tensors]
        else:
            record["bits"][key] = sha(*tensors)
            record["samples"][key] = sample_bytes(tensors)
    return record


def _integers(tensor: Tensor) -> dict[str, Any]:
    values = tensor.flatten()[:8].tolist()
    return {"exact": {"sha256": sha(tensor.long()), "shape": list(tensor.shape), "first": values}}


def _draw(num_rows: int, count: int, seed: int, step: int, **options: Any) -> dict[str, Any]:
    rows = torch.tensor([3, 0, num_rows - 1, 3, 7])
    return _integers(subject.draw(rows, num_rows, count, seed, step, **options))


def _bank(placement: str, **keys: Any) -> dict[str, Any]:
    rows = subject.initial_rows(placement, **keys)
    return {
        "exact": {"shape": list(rows.shape), "dtype": str(rows.dtype)},
        "bits": {"rows": sha(rows)},
        "projections": {"rows": project(rows)},
    }


def _batch(name: str) -> dict[str, Any]:
    """A batch of which the second image could not be read."""
    transform, parameters = VIEWS[name]
    apply = subject.make_views(transform, **parameters)
    samples = [
        apply(photo(*size, seed=index), SEED, EPOCH, 10 + index, valid=index != 1)
        for index, size in enumerate(SIZES)
    ]
    record: dict[str, Any] = {"exact": {}, "bits": {}, "samples": {}}
    for key, (tensor,) in subject.collate(samples).items():
        if tensor.dtype == torch.uint8:
            record["exact"][f"shape of {key}"] = list(tensor.shape)
            record["bits"][key] = sha(tensor)
            record["samples"][key] = sample_bytes([tensor])
        else:
            record["exact"][key] = [str(tensor.dtype), *tensor.tolist()]
    return record


def _parts() -> dict[str, Callable[[], dict[str, Any]]]:
    exclude = {"exclude": torch.tensor([-1, 4, 2, -1, 0])}
    distinct, shared = {"replacement": False}, {"per_batch": True}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "draw": lambda: _draw(1000, 321, 0, 0),
        "draw at a late step": lambda: _draw(1000, 64, 12345678901, 2**33 + 5),
        "draw from many rows": lambda: _draw(2_000_000_000, 64, 1, 17),
        "draw, exclude": lambda: _draw(40, 33, 2, 3, **exclude),
        "draw without replacement": lambda: _draw(50, 30, 3, 4, **distinct),
        "draw without replacement, exclude": lambda: _draw(50, 30, 3, 4, **distinct, **exclude),
        "draw for a batch": lambda: _draw(1000, 64, 4, 5, **shared),
        "draw for a batch, exclude": lambda: _draw(40, 33, 4, 5, **shared, **exclude),
        "draw for a batch without replacement": lambda: _draw(50, 30, 4, 5, **shared, **distinct),
        "bank": lambda: _bank("replicated", num_rows=100, dim=16),
        "bank, seed 7": lambda: _bank("replicated", num_rows=66_000, dim=4, seed=7),
        "bank, bfloat16": lambda: _bank("replicated", num_rows=100, dim=16, dtype="bfloat16"),
        "bank, sharded": lambda: _bank("sharded", num_rows=100, dim=16, seed=2**33),
        "words of generators": lambda: {
            "exact": {
                str(key): subject.first_words(*key, count=4)
                for key in ((0, 0, 0), (1, 2, 3), (-1, 2**24 - 1, 2**40 - 1), (2**70 + 3, 0, 9))
            }
        },
    }
    for num_rows in (2, 16, 50, 1001, 12_345):
        for seed in (0, 9, None):  # None: the permutation of today, which has none
            name = f"positions of {num_rows} rows" + (f", seed {seed}" if seed is not None else "")
            parts[name] = lambda num_rows=num_rows, seed=seed: _integers(
                subject.positions(num_rows, seed)
            )
    for size, patches, seed in (
        (1, 9, 0), (100, 9, 0), (2000, 9, 0), (2000, 9, 1), (10_001, 9, 0), (24, 4, 0)
    ):  # fmt: skip
        parts[f"{size} orders of {patches}, seed {seed}"] = lambda key=(size, patches, seed): (
            _integers(subject.orders(*key))
        )
    for some in (None, 100):
        parts[f"orders drawn from {some or 'all'}"] = lambda some=some: _integers(
            subject.drawn_orders(some, 9, 6, 20)
        )
    for name, cases in _TRANSFORMS.items():
        assert "small" in cases
        parts[f"batch of {name}"] = lambda name=f"{name}, small, fused": _batch(name)
    return parts


PARTS = _parts()


def record_part(name: str) -> dict[str, Any]:
    """Record one of the draws, banks, permutations or batches."""
    return PARTS[name]()
