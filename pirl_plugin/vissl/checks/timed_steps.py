"""Time some steps of a run on this machine, before it is made: its own data, model and loss."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import num_micro_batches
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.vissl.checks.loss_section import loss_section

if TYPE_CHECKING:
    import torch
    from classy_vision.losses import ClassyLoss
    from torch import Tensor, nn
    from vissl.config import AttrDict

_STEPS = 5  # timed at most, after one that is not
_SECONDS = 20.0  # after which no further step is begun
_TIMED_ROWS = 200_000  # of a bank in the timed steps at most; their time does not grow with more


@dataclass
class Measured:
    """What was timed on this machine.

    Attributes:
        input_s: seconds to read, decode and transform an image, in one process.
        step_s: seconds of a step without its input.
        memory: bytes, of the GPU's peak or of this process's.
        weights: bytes of parameters and buffers.
        momentum: bytes of the optimiser's state.
    """

    input_s: float
    step_s: float
    memory: int
    weights: int
    momentum: int


def measure(config: AttrDict, images: int) -> Measured:
    """Time input, and forward and backward passes, on the run's own data and device."""
    import torch
    from vissl.data import build_dataset
    from vissl.data.collators import get_collator
    from vissl.models import build_model

    train = config.DATA.TRAIN
    data = build_dataset(config, "TRAIN")
    parts = num_micro_batches(config)
    rows = evenly_spaced(len(data), train.BATCHSIZE_PER_REPLICA // parts)
    data[rows[0]]  # compiles or loads the kernels
    began = time.perf_counter()
    samples = [data[row] for row in rows]
    input_s = (time.perf_counter() - began) / len(rows)
    batch = get_collator(train.COLLATE_FUNCTION, train.COLLATE_FUNCTION_PARAMS)(samples)
    gpu = config.MACHINE.DEVICE == "gpu" and torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    model = build_model(config.MODEL, config.OPTIMIZER).to(device).train()
    loss = _built_loss(config, images).to(device)
    inputs = {name: _first(batch[name]).to(device) for name in train.INPUT_KEY_NAMES}
    labels = _first(batch[train.TARGET_KEY_NAMES[0]]).to(device)
    if config.LOSS.name == "pirl_loss":
        labels = labels % loss.bank.num_rows
    _prepare(config, model, device)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    for step in range(1 + _STEPS):
        if step == 1:
            _wait(gpu)
            began = time.perf_counter()
        model.zero_grad()
        outputs = model(inputs if len(inputs) > 1 else next(iter(inputs.values())))
        loss(outputs[0] if len(outputs) == 1 else outputs, labels).backward()
        if step and time.perf_counter() - began > _SECONDS:
            break
    _wait(gpu)
    step_s = (time.perf_counter() - began) / step
    trained = [p for p in model.parameters() if p.requires_grad]
    return Measured(
        input_s=input_s,
        step_s=parts * step_s,
        memory=torch.cuda.max_memory_allocated() if gpu else _resident(),
        weights=sum(t.numel() * t.element_size() for t in model.state_dict().values()),
        momentum=sum(p.numel() * p.element_size() for p in trained),
    )


def _built_loss(config: AttrDict, images: int) -> ClassyLoss:
    from classy_vision.losses import build_loss

    section = {**config.LOSS[config.LOSS.name], "name": config.LOSS.name}
    if (loss := loss_section(config)) is not None:
        enough = max(_TIMED_ROWS, loss.num_negatives + 1)
        section["num_train_samples"] = min(images, enough)
    return build_loss(section)


def _prepare(config: AttrDict, model: nn.Module, device: torch.device) -> None:
    """Normalise inputs, in the run's precision, as in the run."""
    if "PIRL_INPUT" not in config.HOOKS:
        return
    from types import SimpleNamespace

    from pirl_plugin.vissl.hooks.input import PIRLInputHook

    hook = PIRLInputHook.from_config(config)
    hook.compile = False  # which takes minutes
    hook.prepare_model(model)
    hook.on_start(SimpleNamespace(base_model=model, device=device))


def _first(value: Tensor | list[Tensor]) -> Tensor:
    return value[0] if isinstance(value, list) else value


def _wait(gpu: bool) -> None:
    if gpu:
        import torch

        torch.cuda.synchronize()


def _resident() -> int:
    """Peak resident bytes of this process; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
