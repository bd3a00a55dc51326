"""``pirl-plugin train ARGS``: what the host's ``tools/run_distributed_engines.py ARGS`` does."""

from __future__ import annotations

from pirl_plugin.requirements import require_host


def main(overrides: list[str]) -> None:
    """Compose the configuration and launch it, here or through SLURM.

    Args:
        overrides: Hydra overrides, for instance ``["config=pretrain/pirl/quick_jigsaw"]``.

    Raises:
        SystemExit: VISSL is not installed, or an argument or the data cannot be used.
    """
    if overrides and overrides[0] in ("-h", "--help"):
        print(
            "usage: pirl-plugin train config=NAME [+config/pirl/GROUP=NAME …] [config.KEY=VALUE …]"
        )
        return
    require_host()
    from vissl.hooks import default_hook_generator
    from vissl.utils import distributed_launcher as launcher
    from vissl.utils import hydra_config

    args, config = hydra_config.convert_to_attrdict(
        hydra_config.compose_hydra_configuration(overrides)
    )
    if config.SLURM.USE_SLURM:
        launcher.launch_distributed_on_slurm(engine_name=args.engine_name, cfg=config)
    else:
        launcher.launch_distributed(
            cfg=config,
            node_id=args.node_id,
            engine_name=args.engine_name,
            hook_generator=default_hook_generator,
        )
