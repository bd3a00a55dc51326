"""The train step ``pirl_micro_batches``: a batch in parts, for machines without memory for it."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pirl_plugin.settings import num_micro_batches
from pirl_plugin.vissl.adapters.loss import image_and_transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from torch.amp import GradScaler
    from vissl.trainer.train_task import SelfSupervisionTask

    Inputs = Tensor | dict[str, Tensor]
    Loss = Callable[[Tensor | list[Tensor], Tensor], Tensor]


def pirl_micro_batches(task: SelfSupervisionTask | None = None) -> Any:
    """Train on one batch in ``TRAINER.PIRL_MICRO_BATCHES`` parts, whose gradients add up.

    The gradient is the whole batch's but for BatchNorm, whose statistics are those of each
    micro-batch (with synchronised BatchNorm, of all processes' micro-batches). Hooks, meters, bank,
    schedule and what the loader delivers are as in the host's ``standard_train_step``, which runs
    where there is nothing to split: in a test phase, and with one micro-batch. Gradients travel
    between processes once, with the last micro-batch.

    Args:
        task: the host's; None: the host's git main makes a step first, and calls it later.
    """
    from classy_vision.generic.distributed_util import all_reduce_mean
    from vissl.utils.perf_stats import PerfTimer

    if task is None:
        return pirl_micro_batches
    if not task.train or num_micro_batches(task.config) == 1:
        return _host_step()(task)
    task.last_batch = batch = SimpleNamespace()
    with PerfTimer("train_step_total", task.perf_stats):
        with PerfTimer("read_sample", task.perf_stats):
            sample = next_sample(task)
            if sample is None:
                raise StopIteration  # as the host's step does
        target = batch.target = sample["target"]
        parts = micro_batches_of(task, sample["input"], target)
        task.optimizer.zero_grad()
        with PerfTimer("forward_backward", task.perf_stats):
            loss, batch.model_output = _accumulate(task, parts, target)
        batch.sample = sample
        task.run_hooks("on_forward")
        batch.loss = all_reduce_mean(loss)
        task.losses.append(batch.loss.item() * target.size(0))
        _update_meters(task)
        task.run_hooks("on_loss_and_meter")
        task.run_hooks("on_backward")
        with PerfTimer("optimizer_step", task.perf_stats):
            _step(task)
        task.run_hooks("on_update")
        task.num_updates += task.get_global_batchsize()
    return task


def _host_step() -> Callable[[SelfSupervisionTask], Any]:
    """Return the host's own train step: a function in 0.1.6, a class in git main."""
    from vissl.trainer.train_steps import standard_train_step as host

    step: Any = getattr(host, "standard_train_step", None)
    return step or host.StandardTrainStep()


def next_sample(task: SelfSupervisionTask) -> dict[str, Any] | None:
    """Return the next batch as the model takes it, None after the last."""
    from vissl.trainer.train_steps import standard_train_step as host

    sample: dict[str, Any]
    try:
        if hasattr(host, "construct_sample_for_model"):  # 0.1.6
            sample = host.construct_sample_for_model(next(task.data_iterator), task)
        else:
            sample = host.StandardTrainStep.construct_sample_for_model(task)
    except StopIteration:
        return None
    return sample


def micro_batches_of(
    task: SelfSupervisionTask, inputs: Inputs, target: Tensor
) -> list[tuple[Inputs, Tensor]]:
    """A batch of training in the parts that go through the model one after another."""
    count = num_micro_batches(task.config)
    largest = max(task.config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"] // count, 1)
    return [(inputs, target)] if count == 1 else split(inputs, target, largest)


def _accumulate(
    task: SelfSupervisionTask, parts: list[tuple[Inputs, Tensor]], target: Tensor
) -> tuple[Tensor, Tensor | list[Tensor]]:
    """Forward and backward passes of all parts; the loss and the outputs of the whole batch."""
    from vissl.utils.activation_checkpointing import manual_gradient_all_reduce, manual_sync_params

    by_hand, scaler = task.enable_manual_gradient_reduction, _scaler(task)
    total, outputs = torch.zeros((), device=target.device), []
    with _whole_batch(task, parts, target) as loss:
        if by_hand:
            manual_sync_params(task.model)
        for number, (inputs, mine) in enumerate(parts, start=1):
            alone = by_hand or number < len(parts)
            with getattr(task.model, "no_sync", nullcontext)() if alone else nullcontext():
                with autocast(task):
                    output = _forward(task.model, inputs)
                    value = loss(output, mine)
                (value if scaler is None else scaler.scale(value)).backward()
            total += value.detach()
            outputs.append(join([output]))  # without its graph
        if by_hand:
            manual_gradient_all_reduce(task.model)
    return total, join(outputs)


@contextmanager
def _whole_batch(
    task: SelfSupervisionTask, parts: list[tuple[Inputs, Tensor]], target: Tensor
) -> Iterator[Loss]:
    """The loss of micro-batches that add up, and Z before it where the batch sets Z."""
    name = task.config["LOSS"]["name"]
    if name != "pirl_loss":
        ignored = task.config["LOSS"][name]["ignore_index"]
        yield _share_of_mean(task.loss, int((target != ignored).sum()), ignored)
        return
    with task.loss.micro_batches(target) as whole:
        if whole.needs_norm_constant:
            with _left_as_it_is(task.base_model), autocast(task):
                for inputs, mine in parts:
                    output = _forward(task.base_model, inputs)
                    whole.survey(*image_and_transformed(output), mine)
            whole.set_norm_constant()
        yield task.loss


def _forward(model: nn.Module, inputs: Inputs) -> Tensor | list[Tensor]:
    """The outputs of all heads, or that of a single one outside its list."""
    output = model(inputs)
    return output[0] if isinstance(output, list) and len(output) == 1 else output


def autocast(task: SelfSupervisionTask) -> torch.autocast:
    """The host's automatic mixed precision, where the run has it."""
    enabled = _scaler(task) is not None and task.device.type == "cuda"
    return torch.autocast("cuda", torch.float16, enabled=enabled)


def _scaler(task: SelfSupervisionTask) -> GradScaler | None:
    """What scales the loss with the host's automatic mixed precision; None without it."""
    from classy_vision.tasks.classification_task import AmpType

    return task.amp_grad_scaler if task.amp_type == AmpType.PYTORCH else None


def _update_meters(task: SelfSupervisionTask) -> None:
    if not task.meters or not task.config["METERS"]["enable_training_meter"]:
        return
    output = task.last_batch.model_output
    on_cpu = [one.cpu() for one in output] if isinstance(output, list) else output.cpu()
    for meter in task.meters:
        meter.update(on_cpu, task.last_batch.target.detach().cpu())


def _step(task: SelfSupervisionTask) -> None:
    """One step of the optimiser, which follows the schedule to ``task.where``.

    Raises:
        RuntimeError: the schedule is over.
    """
    if not task.where < 1:
        raise RuntimeError(
            f"the schedule is over at step {task.iteration} (where = {task.where:g}), and there is "
            f"another batch: expected as many images as at the start; keep the data as it was"
        )
    scaler = _scaler(task)
    if scaler is None:
        task.optimizer.step(where=task.where)
        return
    scaler.step(task.optimizer, where=task.where)
    scaler.update()


def _share_of_mean(loss: Loss, labelled: int, ignored: int) -> Loss:
    """Return the part of a mean over ``labelled`` images that a micro-batch contributes."""

    def share(output: Tensor | list[Tensor], target: Tensor) -> Tensor:
        mine = int((target != ignored).sum())
        if mine:
            return loss(output, target) * (mine / labelled)
        outputs = [output] if isinstance(output, Tensor) else output
        return torch.stack([0 * one.float().sum() for one in outputs]).sum()  # keeps the graph

    return share


def split(inputs: Inputs, target: Tensor, largest: int) -> list[tuple[Inputs, Tensor]]:
    """Split a batch into ⌈B / largest⌉ micro-batches as equal as can be.

    Args:
        inputs: ``(B, …)`` or, with k views of an image one after the other, ``(k·B, …)``; or a
            dictionary of such.
        target: ``(B,)``.
        largest: number of images in a micro-batch at most.

    Example:
        >>> patches, rows = torch.arange(10), torch.arange(5)  # 2 patches of each image
        >>> [(part.tolist(), mine.tolist()) for part, mine in split(patches, rows, 4)]
        [([0, 1, 2, 3, 4, 5], [0, 1, 2]), ([6, 7, 8, 9], [3, 4])]
    """
    targets = target.tensor_split(-(-len(target) // largest))

    def parts(views: Tensor) -> tuple[Tensor, ...]:
        return views.split([len(views) // len(target) * len(part) for part in targets])

    if isinstance(inputs, Tensor):
        return list(zip(parts(inputs), targets, strict=True))
    columns = {name: parts(views) for name, views in inputs.items()}
    return [({k: v[i] for k, v in columns.items()}, part) for i, part in enumerate(targets)]


def join(outputs: Sequence[Tensor | list[Tensor]]) -> Tensor | list[Tensor]:
    """Return a model's outputs of the micro-batches, detached, as those of the batch."""
    if isinstance(outputs[0], Tensor):
        return torch.cat([one.detach() for one in outputs if isinstance(one, Tensor)])
    return [torch.cat([part.detach() for part in head]) for head in zip(*outputs, strict=True)]


@contextmanager
def _left_as_it_is(model: nn.Module) -> Iterator[None]:
    """Run forward passes without gradients, and restore buffers and the random state."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(sorted(d for d in devices if d is not None)), torch.no_grad():
        try:
            yield
        finally:
            for buffer, value in before:
                buffer.copy_(value)
