"""``pirl-plugin train ARGS``: what the host's ``tools/run_distributed_engines.py ARGS`` does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pirl_plugin.utils.requirements import require_host
from pirl_plugin.vissl.launch.failures import refuse
from pirl_plugin.vissl.launch.options import check_options
from pirl_plugin.vissl.launch.supervise import max_restarts, supervise
from pirl_plugin.vissl.launch.waiting import wait_passively


def main(overrides: list[str]) -> None:
    """Compose the configuration and launch it, here or through SLURM.

    Args:
        overrides: Hydra overrides, for instance ``["config=pretrain/pirl/quick_jigsaw"]``.

    Raises:
        SystemExit: VISSL is not installed, or an argument or the data cannot be used.
    """
    if overrides and overrides[0] in ("-h", "--help"):
        print(
            "usage: pirl-plugin train [--max-restarts N] config=NAME "
            "[+config/pirl/GROUP=NAME …] [config.KEY=VALUE …]\n"
            "  --max-restarts N  start the run again up to N times without a new checkpoint"
        )
        return
    wait_passively(overrides)
    require_host()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        refuse(
            "torchrun started this command: expected it by itself, as it starts a process for each "
            "GPU; leave torchrun out, and set config.DISTRIBUTED.NUM_PROC_PER_NODE"
        )
    restarts, overrides = max_restarts(overrides)
    check_options(overrides)
    from vissl.hooks import default_hook_generator
    from vissl.utils import distributed_launcher as launcher
    from vissl.utils import hydra_config

    composed = hydra_config.compose_hydra_configuration(overrides)
    args, config = hydra_config.convert_to_attrdict(composed)
    if restarts:
        if config.SLURM.USE_SLURM:
            refuse(
                f"--max-restarts {restarts}: expected a run on this machine, and "
                f"config.SLURM.USE_SLURM is true; remove it, as SLURM requeues the job itself"
            )
        command = [sys.executable, "-m", "pirl_plugin", "train", *overrides]
        status = supervise(command, restarts, Path(config.CHECKPOINT.DIR))
        if status:
            raise SystemExit(status)
        return
    if config.SLURM.USE_SLURM:
        launcher.launch_distributed_on_slurm(engine_name=args.engine_name, cfg=config)
    else:
        launcher.launch_distributed(
            cfg=config,
            node_id=args.node_id,
            engine_name=args.engine_name,
            hook_generator=default_hook_generator,
        )
