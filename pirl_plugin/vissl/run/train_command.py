"""``pirl-plugin train``: compose a configuration, and run it here or through SLURM."""

from __future__ import annotations

import atexit
import gc

from pirl_plugin.vissl.host_config import require_host
from pirl_plugin.vissl.run.group import torchrun_local_rank
from pirl_plugin.vissl.run.launch import prepare_run_workers

_USAGE = """\
usage: pirl-plugin train config=NAME [+config/pirl/GROUP=NAME …] [config.KEY=VALUE …]

Pre-train, or run a benchmark, with VISSL. The arguments are those of VISSL's own
tools/run_distributed_engines.py.

  pirl-plugin train config=pretrain/pirl/quick_jigsaw 'config.DATA.TRAIN.DATA_PATHS=[photos]'
  torchrun --nproc-per-node 8 -m pirl_plugin train config=pretrain/pirl/jigsaw_8node …
  pirl-plugin configs    # lists configs and overlays"""


def main(overrides: list[str]) -> int:
    """Compose a configuration and run it, here or through SLURM; return the exit status.

    Raises:
        MissingPackage: VISSL is not installed.
    """
    if not overrides or {"-h", "--help"} & set(overrides):
        print(_USAGE)
        return 0 if overrides else 2
    require_host()
    gc.disable()  # makes importing torch and VISSL a quarter faster
    from pirl_plugin.vissl.run import compose as composing

    composed = composing.compose(overrides)
    section = composed.config
    composing.check_paths(section)
    is_one_process = section.DISTRIBUTED.NUM_PROC_PER_NODE == 1 or torchrun_local_rank() is not None
    if is_one_process and not section.SLURM.USE_SLURM:
        prepare_run_workers(section)  # the server imports VISSL while this process does
    from vissl.utils import hydra_config

    args, config = hydra_config.convert_to_attrdict(composing.complete(composed, overrides))
    from vissl.hooks import default_hook_generator
    from vissl.utils import distributed_launcher

    gc.freeze()  # exclude imported objects from later collections
    atexit.register(gc.unfreeze)  # otherwise Triton reports leaks
    gc.enable()
    if config.SLURM.USE_SLURM:
        distributed_launcher.launch_distributed_on_slurm(config, args.engine_name)
    else:
        distributed_launcher.launch_distributed(
            config, args.node_id, args.engine_name, default_hook_generator
        )
    return 0
