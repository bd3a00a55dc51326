"""Give the host's trainer our hooks when the loss is ours, and the input hook when asked for."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from pirl_plugin.settings import is_ours, num_micro_batches
from pirl_plugin.vissl.patches.patches import PATCHED
from pirl_plugin.vissl.sections import read_section
from pirl_plugin.vissl.start_page import shows_page

if TYPE_CHECKING:
    from classy_vision.hooks import ClassyHook
    from torch import nn
    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.vissl.host_module import HostModule


def add_our_hooks(module: HostModule) -> None:
    """Wrap ``add_loss_hooks``, which the host's hook generator looks up in every rank."""
    original = module.add_loss_hooks

    @functools.wraps(original)
    def add_loss_hooks(
        hooks: list[ClassyHook], loss_cfg: AttrDict, cfg: AttrDict
    ) -> list[ClassyHook]:
        hooks = original(hooks, loss_cfg, cfg)
        if is_ours(cfg):
            logging.info(f"VISSL is patched: {', '.join(PATCHED)}")
            hooks.extend(fault_hooks(cfg))
        wanted = "PIRL_INPUT" in cfg.HOOKS or num_micro_batches(cfg) > 1
        if cfg.LOSS.name == "pirl_loss" or wanted:
            from pirl_plugin.vissl.hooks.input import PIRLInputHook

            hooks.append(PIRLInputHook.from_config(cfg))
        if cfg.LOSS.name == "pirl_loss":
            from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
            from pirl_plugin.vissl.hooks.monitor import MonitorHook, MonitorSettings
            from pirl_plugin.vissl.hooks.report import PIRLReportHook

            hooks.extend([MemoryBankHook(), PIRLReportHook()])
            monitor = read_section(MonitorSettings, cfg, "HOOKS.PIRL_MONITOR")
            hooks.extend([MonitorHook(monitor)] if monitor.enabled else [])
        if is_ours(cfg):
            from pirl_plugin.vissl.hooks.checkpoint import CheckpointHook

            # After the bank has its size, and before the host's own hook, which saves.
            hooks.append(CheckpointHook.from_config(cfg))
        if shows_page():
            from pirl_plugin.vissl.hooks.report import ProgressHook

            hooks.append(ProgressHook())
        return hooks

    module.add_loss_hooks = add_loss_hooks


def prepare_models(module: HostModule) -> None:
    """Have our input hook prepare a model that the host has built and not yet wrapped.

    The host has no hook before DistributedDataParallel lays out its gradients.
    """
    task = module.SelfSupervisionTask
    build = task._build_model

    @functools.wraps(build)
    def _build_model(self: SelfSupervisionTask, *args: Any, **kwargs: Any) -> nn.Module:
        from pirl_plugin.vissl.hooks.input import PIRLInputHook

        model = build(self, *args, **kwargs)
        for hook in self.hooks:
            if isinstance(hook, PIRLInputHook):
                hook.prepare_model(model)
        return model

    task._build_model = _build_model


def fault_hooks(cfg: AttrDict) -> list[ClassyHook]:
    """Hooks of all runs of ours: they stop a run on faults before another hook acts on them."""
    from pirl_plugin.vissl.hooks.faults import FiniteHook, RunSettings, UnreadableHook

    settings = RunSettings.from_config(cfg)
    return [UnreadableHook(settings.max_unreadable), FiniteHook()]
