"""Look at the files that a run starts from: they are there, can be read, and fit its trunk."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.checks.model import build_on_meta
from pirl_plugin.vissl.checks.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.config import AttrDict

_FILE = "config.MODEL.WEIGHTS_INIT.PARAMS_FILE"
_FILES = "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"


def check_initial_weights(config: AttrDict) -> None:
    """Refuse a checkpoint that a run cannot start from, before anything is started.

    Approaches of VISSL are not looked at, nor is what a run that resumes once started from.

    Raises:
        SystemExit: it does not exist, cannot be read or does not fit the trunk; what to do.
    """
    if not is_ours(config):
        return
    weights_init, trunk = config.MODEL.WEIGHTS_INIT, config.MODEL.TRUNK
    named = (trunk.get("PIRL_ENSEMBLE") or {}).get("PARAMS_FILES") or []
    if trunk.NAME != "pirl_ensemble" and any(named):
        refuse(
            f"config.MODEL.TRUNK.NAME = '{trunk.NAME}': expected pirl_ensemble, as {_FILES} names "
            f"{named}; take an overlay of ensembles, as +config/pirl/linear=resnet18_ensemble"
        )
    if trunk.NAME == "pirl_ensemble":
        section = trunk.PIRL_ENSEMBLE
        for i, path in enumerate(section.PARAMS_FILES):
            _read(f"{_FILES}[{i}]", path, bool(section.get("TRUST_PICKLE")))
    elif not weights_init.PARAMS_FILE:
        return
    if not _resumes(config):
        trusted = bool(weights_init.get("TRUST_PICKLE"))
        _check_fit(config, _read(_FILE, weights_init.PARAMS_FILE, trusted))


def _resumes(config: AttrDict) -> bool:
    """Whether a run goes on from a checkpoint of its own, and reads no other."""
    from pirl_plugin.checkpoints.resume import find_newest

    section = config.CHECKPOINT
    if not section.AUTO_RESUME or "://" in section.DIR:
        return False
    return (
        find_newest(Path(section.DIR), skip_final=bool(section.OVERWRITE_EXISTING)).path is not None
    )


def _read(key: str, path: str, trusted: bool) -> Mapping[str, object] | None:
    """Read a checkpoint's every byte, without running code in it.

    Returns:
        Its content; None where no file is named, or its parts are in files of their own.

    Raises:
        SystemExit: why it cannot be read.
    """
    from pirl_plugin.checkpoints.read import (
        SeveralFilesError,
        UntrustedPickleError,
        read_checkpoint,
    )

    if not path:
        return None
    if not os.path.isfile(path):
        refuse(
            f"{key} = '{path}': expected a file that exists; name the checkpoint of a run, or '' "
            f"to start from random initialisation"
        )
    try:
        return read_checkpoint(Path(path), trusted)
    except SeveralFilesError:
        return None  # of the host's sharded training, which it reads itself
    except UntrustedPickleError as error:
        section = key.rpartition(".")[0]
        refuse(f"{key}: {error.with_option(f'add ++{section}.TRUST_PICKLE=True')}", error)
    except (OSError, ValueError) as error:
        refuse(f"{key}: {error}", error)


def _check_fit(config: AttrDict, given: Mapping[str, object] | None) -> None:
    """Refuse weights that do not fit, as the ranks would when they load them."""
    import torch
    from vissl.utils import checkpoint as host

    from pirl_plugin.checkpoints.compare import MismatchError
    from pirl_plugin.vissl.patches.checkpoints import fitting

    weights_init = config.MODEL.WEIGHTS_INIT
    try:
        with (
            warnings.catch_warnings(),
            torch.random.fork_rng(devices=[]),
            torch.device("meta"),
        ):
            warnings.filterwarnings("ignore", "for .*: copying from a non-meta parameter")
            model = build_on_meta(config.MODEL, config.OPTIMIZER)
        if given is None or model is None:  # an ensemble has read its own
            return
        names = (
            weights_init.get("STATE_DICT_KEY_NAME"),
            weights_init.get("REMOVE_PREFIX"),
            weights_init.get("APPEND_PREFIX"),
        )
        fitting(host, config, model, given, weights_init.get("SKIP_LAYERS", []), names)
    except MismatchError as error:
        refuse(str(error), error)
