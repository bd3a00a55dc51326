"""Register our parts in the host's registries, and our hooks in its trainer."""

from __future__ import annotations

import functools
import importlib
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.host_config import is_ours, num_micro_batches
from pirl_plugin.vissl.import_hook.table import PARTS
from pirl_plugin.vissl.run.start_summary import shows_page

if TYPE_CHECKING:
    from classy_vision.hooks import ClassyHook
    from vissl.config import AttrDict


def register_parts(module: Any) -> None:
    """Register the table's parts of ``module``. A second registration changes nothing."""
    registry, parts = PARTS[module.__name__]
    classes = {name: resolve_name(path) for name, path in parts.items()}
    resolve_name(registry).update(classes)


def give_whole_sample_to_our_transforms(module: Any) -> None:
    """Make the host pass the row and validity of an image to our transforms, besides pixels."""
    types = importlib.import_module("vissl.data.ssl_transforms.ssl_transforms_wrapper")
    names = types.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    _, transforms = PARTS[module.__name__]
    names.extend(name for name in transforms if name not in names)


def let_data_limit_apply_to_our_sources(module: Any) -> None:
    """Add our sources to the host's set of sources that support ``DATA_LIMIT``."""
    _, sources = PARTS[module.__name__]
    module.DATA_SOURCES_WITH_SUBSET_SUPPORT.update(sources)


def add_our_hooks(module: Any) -> None:
    """Wrap the host's hook generator, which every rank calls."""
    original = module.default_hook_generator

    @functools.wraps(original)
    def default_hook_generator(cfg: AttrDict) -> list[ClassyHook]:
        hooks: list[ClassyHook] = original(cfg)
        return _with_our_hooks(hooks, cfg) if is_ours(cfg) else hooks

    module.default_hook_generator = default_hook_generator


def _with_our_hooks(hosts: list[ClassyHook], cfg: AttrDict) -> list[ClassyHook]:
    """Return our hooks and the host's, with our hook in the place of the host's that saves."""
    from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook
    from vissl.hooks.state_update_hooks import CheckNanModelOutputHook

    from pirl_plugin.vissl.hooks.faults import ExchangeHook, FiniteHook
    from pirl_plugin.vissl.hooks.input import PIRLInputHook
    from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
    from pirl_plugin.vissl.hooks.monitor import MonitorHook
    from pirl_plugin.vissl.hooks.outputs import Outputs
    from pirl_plugin.vissl.hooks.progress import PIRLReportHook, ProgressHook
    from pirl_plugin.vissl.resume.hook import CheckpointHook
    from pirl_plugin.vissl.run.sections import MonitorSettings, RunSettings, read_section

    # Hooks that stop a run on faults come first, before another hook acts on the fault.
    settings = read_section(RunSettings, cfg, "HOOKS.PIRL_RUN")
    exchange = ExchangeHook(settings.max_unreadable)
    hooks: list[ClassyHook] = [exchange]
    needs_input = "PIRL_INPUT" in cfg.HOOKS or num_micro_batches(cfg) > 1
    if cfg.LOSS.name == "pirl_loss" or needs_input:
        hooks.append(PIRLInputHook.from_config(cfg))
    if cfg.LOSS.name == "pirl_loss":
        hooks.append(MemoryBankHook(exchange))
    # After the bank's hook, which names the cause if it is an index outside the data set.
    hooks.append(FiniteHook())
    if cfg.LOSS.name == "pirl_loss":
        outputs = Outputs(hosts)
        hooks.append(PIRLReportHook(cfg.LOG_FREQUENCY, outputs))
        monitor = read_section(MonitorSettings, cfg, "HOOKS.PIRL_MONITOR")
        if monitor.enabled:
            hooks.append(MonitorHook(monitor, outputs))
    # The host's hook that saves comes after the hook that sets the bank's size.
    for hook in hosts:
        if isinstance(hook, LogLossMetricsCheckpointHook):
            hooks.append(CheckpointHook(cfg, exchange))
        elif not isinstance(hook, CheckNanModelOutputHook):  # it saves the broken model
            hooks.append(hook)
    if shows_page():
        hooks.append(ProgressHook.from_config(cfg))
    return hooks


def prepare_models(module: Any) -> None:
    """Make our input hook prepare a model after the host has built it, and before it is wrapped.

    The host has no hook before DistributedDataParallel allocates its gradient buckets.
    """
    from pirl_plugin.vissl.hooks.input import PIRLInputHook

    task = module.SelfSupervisionTask
    build = task._build_model

    @functools.wraps(build)
    def _build_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = build(self, *args, **kwargs)
        for hook in self.hooks:
            if isinstance(hook, PIRLInputHook):
                hook.prepare_model(model)
        return model

    task._build_model = _build_model
