"""How a result is recorded, and how another is compared with the record.

A record has up to five parts, each a dict by the name of a quantity:

``exact``
    Results of integer arithmetic: a SHA-256 of the bytes, or the values. Equal everywhere.
``bits``
    SHA-256 of the bytes of floats and views. Equal where :func:`environment` is.
``series``
    Floats, compared one by one, relative to each.
``projections``
    Of a tensor x: (⟨x, r⟩, ‖x‖), r a fixed standard normal vector, compared relative to ‖x‖. For an
    error e of x, ⟨e, r⟩ is normal with standard deviation ‖e‖, so hardly any error escapes.
``samples``
    Of views: the mean of each channel, and 64 bytes at fixed places.
"""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

# Other vector instructions (``ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2``, or
# ``MKL_CBWR=COMPATIBLE``) change the results of the runs by at most 3.4e-6 of their size.
RELATIVE = 2e-5
# Grey levels. Twice what the views change by where PIL's resize takes the place of torch's.
VIEW_MEAN, VIEW_BYTES = 0.3, 1.0
_NUM_BYTES = 64


def generator(seed: int) -> np.random.Generator:
    """The recording's source of inputs; it shares nothing with the code that is recorded."""
    return np.random.Generator(np.random.Philox(key=seed))


def environment() -> dict[str, str]:
    """What bits of floats depend on, beside the code that is recorded.

    Libraries choose their routines by the processor too, which ``float_probe`` shows: the hash of
    a few products and functions as the recorded code uses them.
    """
    packages = ("torch", "torchvision", "numba", "numpy", "pillow")
    return {
        **{name: version(name) for name in packages},
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "float_probe": _float_probe(),
    }


def _float_probe() -> str:
    normal = generator(7).standard_normal
    left, right = (torch.tensor(normal(shape)).float() for shape in ((2, 8, 16), (61, 16)))
    scores = left @ right.T
    image = torch.tensor(normal((1, 3, 97, 33))).contiguous(memory_format=torch.channels_last)
    resized = torch.nn.functional.interpolate(
        image.float(), size=(32, 32), mode="bilinear", antialias=True
    )
    probes = (
        scores, scores.exp(), scores.logsumexp(2), scores.sigmoid(), scores.sum(2),
        left.norm(dim=2), left[0].T @ left[1], resized,
        torch.nn.functional.softplus(scores), torch.log1p(scores**2),
    )  # fmt: skip
    return sha(*probes)[:16]


def sha(*tensors: Tensor) -> str:
    """SHA-256 of the shapes, types and bytes of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def project(tensor: Tensor) -> tuple[float, float]:
    """A projection on a fixed normal vector, and the norm; in float64."""
    values = tensor.detach().double().numpy().ravel()
    return float(values @ generator(11).standard_normal(values.size)), float(np.linalg.norm(values))


def sample_bytes(views: list[Tensor]) -> dict[str, Any]:
    """Mean of each channel over views ``(…, 3, H, W)`` uint8, and bytes at fixed places."""
    joined = np.concatenate([view.numpy().ravel() for view in views])
    places = generator(13).integers(0, joined.size, _NUM_BYTES)
    channels = [view.double().movedim(-3, 0).flatten(1) for view in views]
    means = torch.cat(channels, dim=1).mean(dim=1)
    return {
        "means": [round(mean, 4) for mean in means.tolist()],
        "bytes": joined[places].tobytes().hex(),
    }


def value_differences(found: dict[str, Any], recorded: dict[str, Any]) -> Iterator[str]:
    """Describe each quantity that differs anywhere: integers, and floats beyond the tolerance."""
    for part in ("exact", "bits", "series", "projections", "samples"):
        names, expected = found.get(part, {}).keys(), recorded.get(part, {}).keys()
        if names != expected:
            yield f"{part} of {sorted(names)}, recorded of {sorted(expected)}"
            return
    for name, value in recorded.get("exact", {}).items():
        if found["exact"][name] != value:
            yield f"{name} is {found['exact'][name]}, recorded {value}"
    for name, values in recorded.get("series", {}).items():
        pairs = list(zip(found["series"][name], values, strict=True))
        for step, (now, before) in enumerate(pairs):
            if not _close(now, before, before):
                yield f"{name}[{step}] is {now}, recorded {before}"
                break
    for name, (projection, norm) in recorded.get("projections", {}).items():
        now = found["projections"][name]
        if not (_close(now[0], projection, norm) and _close(now[1], norm, norm)):
            yield f"{name} (projection, norm) is {now}, recorded {[projection, norm]}"
    for name, sample in recorded.get("samples", {}).items():
        now = found["samples"][name]
        off = np.abs(np.subtract(now["means"], sample["means"])).max()
        first, second = (np.frombuffer(bytes.fromhex(s["bytes"]), np.uint8) for s in (now, sample))
        bytes_off = np.abs(first.astype(int) - second).mean()
        if off > VIEW_MEAN or bytes_off > VIEW_BYTES:
            yield f"{name}: channel means are {off:.2f} off, sampled bytes {bytes_off:.2f}"


def bit_differences(found: dict[str, Any], recorded: dict[str, Any]) -> Iterator[str]:
    """Name each quantity whose bits differ; meaningful in an equal environment."""
    for part in ("bits", "series", "samples"):  # the bits of what is projected are among the first
        for name, value in recorded.get(part, {}).items():
            if found[part][name] != value:
                yield f"{part} of {name}"


def _close(now: float | None, before: float | None, scale: float | None) -> bool:
    if now is None or before is None or scale is None:
        return now is before
    return abs(now - before) <= RELATIVE * abs(scale)
