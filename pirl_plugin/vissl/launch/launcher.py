"""Around the host's launcher: check before anything is spawned, say in one line what runs."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.initial_weights import follow_links
from pirl_plugin.checkpoints.training_run import write_run_config
from pirl_plugin.utils.console import put
from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.checks import check_run
from pirl_plugin.vissl.launch.failures import in_one_sentence
from pirl_plugin.vissl.launch.run import run_ours
from pirl_plugin.vissl.launch.signals import end_stopped, forward_signals
from pirl_plugin.vissl.patches.checkpoints import report_failure
from pirl_plugin.vissl.patches.evaluation_patches import remove_old_results
from pirl_plugin.vissl.start_page import start_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from vissl.config import AttrDict

    from pirl_plugin.vissl.host_module import HostModule

TESTED_HOSTS = ("0.1.6",)  # the last wheel, and git main, which calls itself the same


def guard_launcher(module: HostModule) -> None:
    """Wrap both launchers, and have other processes install the import hook first."""
    from pirl_plugin.vissl.launch import worker

    ours = {
        "_distributed_worker": worker.distributed_worker,
        "_ResumableSlurmJob": worker.SlurmJob,
    }
    module.pirl_plugin_originals = {name: getattr(module, name) for name in ours}
    for name, replacement in ours.items():
        setattr(module, name, replacement)
    module.launch_distributed = _guarded(module.launch_distributed)
    on_slurm = module.launch_distributed_on_slurm
    module.launch_distributed_on_slurm = _guarded(on_slurm, starts_ranks=False)


def _guarded(launch: Callable[..., object], starts_ranks: bool = True) -> Callable[..., object]:
    @functools.wraps(launch)
    def guarded(*args: Any, **kwargs: Any) -> object:
        config: AttrDict = kwargs.get("cfg", args[0] if args else None)
        if is_ours(config):
            follow_links(config)
        extracts = kwargs.get("engine_name") == "extract_features"
        # The SVM tools print their results to the host's log, which then stays on the console.
        put((banner() if extracts else start_page(config, banner())) + "\n")
        try:
            with in_one_sentence():
                check_run(config, kwargs.get("engine_name", "train"))
        except KeyboardInterrupt:
            if not is_ours(config):
                raise
            put("pirl_plugin: SIGINT: ended before the run began\n", sys.stderr)
            raise SystemExit(130) from None
        if extracts and is_ours(config):
            remove_old_results(config)
            write_run_config(config, Path(config.CHECKPOINT.DIR))
        if starts_ranks and is_ours(config):
            node_id = kwargs.get("node_id", args[1] if len(args) > 1 else 0)
            with forward_signals():
                try:
                    return run_ours(lambda: launch(*args, **kwargs), config, node_id)
                except SystemExit as error:
                    stopped = error
            end_stopped(stopped)
            raise stopped
        try:
            return launch(*args, **kwargs)
        except Exception as error:
            report_failure(error)
            raise

    return guarded


def banner() -> str:
    """The line at the start of a run: versions, and how much was patched for them."""
    import vissl

    from pirl_plugin import __version__
    from pirl_plugin.vissl.patches.patches import PATCHED

    version = getattr(vissl, "__version__", "of unknown version")
    line = f"pirl_plugin {__version__} on VISSL {version}, patched in {len(PATCHED)} places"
    if version not in TESTED_HOSTS:
        line += (
            f"\npirl_plugin: VISSL {version} is not a host this plugin was tested with "
            f"({', '.join(TESTED_HOSTS)} and git main); it may fail: to use one that was tested, "
            f"pip install --no-deps vissl==0.1.6"
        )
    return line
