"""Whether Triton's kernels compile and run on a GPU, found out once a process by running one."""

from __future__ import annotations

import functools
import importlib.util
import logging

import torch

from pirl_plugin.losses.engines.blocked import BlockedSums
from pirl_plugin.memory.negatives import Draw

_CAPABILITY = (7, 0)  # the oldest GPUs that Triton compiles for


@functools.cache
def triton_runs(device: torch.device) -> bool:
    """Whether Triton runs on a GPU; says once what is wrong and what is used instead."""
    reason = why_not(device)
    if reason is not None:
        logging.root.warning(
            f"LOSS.pirl_loss.scores = auto: expected Triton to run, but {reason}; the scores "
            f"against the memory bank are computed in blocks, several times slower"
        )
    return reason is None


@functools.cache
def why_not(device: torch.device) -> str | None:
    """Why Triton does not run on a GPU, and what to do; None where it does.

    The first call compiles and waits for the GPU.
    """
    if importlib.util.find_spec("triton") is None:
        return "its package is missing: pip install triton"
    capability = torch.cuda.get_device_capability(device)
    if capability < _CAPABILITY:
        found, expected = (".".join(map(str, c)) for c in (capability, _CAPABILITY))
        return f"the GPU has compute capability {found}: it needs {expected}"
    try:
        is_right = _run_kernel(device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever its compilers, and those that they start, raise
        message = next(iter(str(error).strip().splitlines()), "")
        return f"it failed with {type(error).__name__}: {message}; it needs a C compiler, as gcc"
    return None if is_right else "its sums are wrong here: please report it"


def _run_kernel(device: torch.device) -> bool:
    """Sum with the kernel over a draw that it makes, and compare."""
    from pirl_plugin.losses.engines.triton import TritonSums  # needs the package triton

    generator = torch.Generator().manual_seed(0)
    queries, table = (torch.randn(*shape, generator=generator) for shape in ((2, 3, 128), (9, 128)))
    rows = torch.arange(3, device=device)
    queries, table = queries.to(device), table.to(device)
    draw, shift = Draw(rows, rows, 9, 37, seed=1, step=2), torch.ones((), device=device)
    found = TritonSums(queries, table, draw).sigmoid(shift)
    # In float64: float32 would be TF32 where the user allows that, and further off than the kernel.
    expected = BlockedSums(queries.double(), table.double(), draw).sigmoid(shift.double())
    close = [
        torch.allclose(one.double(), other, rtol=1e-3, atol=1e-3)
        for one, other in zip(found, expected, strict=True)
    ]
    return all(close)
