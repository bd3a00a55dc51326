"""``train_config.yaml`` in a run's folder: the configuration of what was trained, and nothing else.

The host writes it before it knows whether anything will run, so that a command which is refused, or
finds its run finished, would leave another configuration beside the results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.evaluation.compare_settings import identity, settings_of
from pirl_plugin.evaluation.paper_settings.free import FREE, PRETRAINING_FREE
from pirl_plugin.evaluation.run_origin import CONFIG, EARLIER
from pirl_plugin.hooks.vissl_hook import QuietHook
from pirl_plugin.utils.distributed import rank


class RunConfigHook(QuietHook):
    """Writes ``train_config.yaml`` once training starts, on the rank that writes checkpoints."""

    def on_start(self, task: Any) -> None:
        """Write it, before the first step."""
        if rank() == 0:
            write_run_config(task.config, resumed=task.checkpoint_path is not None)


def write_run_config(config: Any, resumed: bool) -> None:
    """Write a run's configuration, where it starts.

    Args:
        config: the host's.
        resumed: whether it goes on from a checkpoint. A configuration with other settings, by
            which it was trained so far, then stays beside the new one.
    """
    from vissl.utils.checkpoint import get_checkpoint_folder
    from vissl.utils.io import save_file

    plain = config.to_dict()
    precision = plain["MODEL"]["FSDP_CONFIG"]  # the host has made a torch.dtype of it
    precision["compute_dtype"] = str(precision["compute_dtype"]).removeprefix("torch.")
    where = get_checkpoint_folder(config)
    if "://" not in where:
        _keep_earlier(Path(where), plain, resumed)
    save_file(plain, f"{where}/{CONFIG}", verbose=False)


def _keep_earlier(folder: Path, config: dict[str, Any], resumed: bool) -> None:
    file, kept = folder / CONFIG, sorted(folder.glob(EARLIER))
    if not resumed:
        for stale in kept:
            stale.unlink()
        return
    if file.is_file() and _settings(yaml.safe_load(file.read_text())) != _settings(config):
        file.rename(folder / EARLIER.replace("*", str(len(kept) + 1)))


def _settings(config: dict[str, Any]) -> str:
    return identity(settings_of(config), [*FREE, *PRETRAINING_FREE])
