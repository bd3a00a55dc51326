"""The hooks of a run of this plugin: one list, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.ranks import rank
from pirl_plugin.vissl.hooks.memory_bank import MemoryBankHook
from pirl_plugin.vissl.hooks.monitor import (
    FiniteHook,
    MonitorHook,
    Outputs,
    PIRLReportHook,
    TestedHook,
)
from pirl_plugin.vissl.hooks.progress import ProgressHook, shows_progress
from pirl_plugin.vissl.resume.exchange import ExchangeHook
from pirl_plugin.vissl.resume.hook import CheckpointHook
from pirl_plugin.vissl.sections import MonitorSettings, RunSettings, read_section

if TYPE_CHECKING:
    from classy_vision.hooks import ClassyHook
    from vissl.config import AttrDict


def hooks_of_run(config: AttrDict, hosts: Sequence[ClassyHook]) -> list[ClassyHook]:
    """Return our hooks and the host's, in the order in which the host calls them.

    Args:
        config: the host's whole configuration.
        hosts: the hooks that the host makes for it.
    """
    run = read_section(RunSettings, config, "HOOKS.PIRL_RUN")
    monitor = read_section(MonitorSettings, config, "HOOKS.PIRL_MONITOR")
    exchange = ExchangeHook(run.max_unreadable)
    host: dict[str, Any] = {type(hook).__name__: hook for hook in hosts}
    outputs = Outputs(
        tensorboard=getattr(host.get("SSLTensorboardHook"), "tb_writer", None),
        json_lines=getattr(host.get("LogLossLrEtaHook"), "json_stdout_logger", None),
    )
    # Our hook takes the place of the host's that saves. No hook saves a broken model.
    host["LogLossMetricsCheckpointHook"] = CheckpointHook(config, exchange)
    host.pop("CheckNanModelOutputHook", None)

    has_bank = config.LOSS.name == "pirl_loss"
    # What stops a run on a fault comes before a hook that acts on the fault.
    hooks: list[ClassyHook] = [exchange, FiniteHook()]
    if config.TEST_MODEL:
        hooks.append(TestedHook(outputs))
    if has_bank:
        hooks.append(MemoryBankHook(exchange))
        hooks.append(PIRLReportHook(config.LOG_FREQUENCY, outputs))
    if has_bank and monitor.enabled:
        hooks.append(MonitorHook(monitor, outputs))
    # The hook that saves comes after the hook that sets the bank's size.
    hooks += host.values()
    if shows_progress() and rank() == 0:
        hooks.append(ProgressHook.from_config(config))
    return hooks
