"""The files that a run's trunk starts from: named for good, recorded, and compared on resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.host_checkpoint import CHECKPOINT_NAME, PLUGIN_SECTION
from pirl_plugin.checkpoints.run_folder import identity

if TYPE_CHECKING:
    from vissl.config import AttrDict

RECORD = "initial_weights"  # key in this plugin's section of a checkpoint
_MOST_LINKS = 40  # as Linux follows; one that leads back to itself has no end
_ONE = "MODEL.WEIGHTS_INIT.PARAMS_FILE"
_SEVERAL = "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"
WEIGHTS = (_ONE, _SEVERAL)
"""Keys of the configuration that name the files."""


def follow_links(config: AttrDict) -> None:
    """Name in a configuration what a pre-training's link ``checkpoint.torch`` leads to now.

    The link moves on with the pre-training; what a run starts from does not.

    Args:
        config: the host's, which is changed.
    """
    weights = config.MODEL.WEIGHTS_INIT
    weights.PARAMS_FILE = _followed(weights.PARAMS_FILE)
    if _is_ensemble(config):
        section = config.MODEL.TRUNK.PIRL_ENSEMBLE
        section.PARAMS_FILES = [_followed(file) for file in section.PARAMS_FILES]


def initial_weights(config: AttrDict) -> dict[str, list[list[str]]]:
    """What a checkpoint records of the files that its run's trunk started from.

    Args:
        config: the host's.

    Returns:
        For each key that names files, of each file its absolute path, links resolved, and its size
        and checksum; both ``""`` for random weights.
    """
    return {key: [_recorded(file) for file in files] for key, files in _files(config).items()}


def describe_other_weights(config: AttrDict, content: Mapping[str, Any], path: str) -> str | None:
    """Which file of a configuration is not the one that a checkpoint's run started from.

    A file may have been moved or copied, or be gone: nothing reads it after the run's start.

    Args:
        config: the host's.
        content: of the checkpoint; older ones have no record.
        path: what the sentence calls the checkpoint.

    Returns:
        One sentence, found and expected; None where all are the same, or none is recorded.
    """
    recorded = (content.get(PLUGIN_SECTION) or {}).get(RECORD) or {}
    for key, given in _files(config).items():
        before = recorded.get(key)
        if before is None or _same(given, before):
            continue
        found, expected = (
            ", ".join(file or "''" for file in files) for files in (given, [b[0] for b in before])
        )
        return (
            f"config.{key} = {found}: expected {expected}, as it was when the run in {path} "
            f"started from it; give that file, wherever it is now, or another "
            f"config.CHECKPOINT.DIR to start a new run"
        )
    return None


def _files(config: AttrDict) -> dict[str, list[str]]:
    files = {_ONE: [config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]]}
    if _is_ensemble(config):
        files[_SEVERAL] = list(config["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"])
    return files


def _is_ensemble(config: AttrDict) -> bool:
    return bool(config["MODEL"]["TRUNK"]["NAME"] == "pirl_ensemble")


def _recorded(file: str) -> list[str]:
    return [str(Path(file).resolve()), identity(Path(file))] if file else ["", ""]


def _same(given: list[str], before: list[list[str]]) -> bool:
    return len(given) == len(before) and all(map(_is_file, given, before))


def _is_file(given: str, before: list[str]) -> bool:
    path, known = _recorded(given)
    return known == before[1] if not given or Path(given).exists() else path == before[0]


def _followed(file: str) -> str:
    path, links = Path(file), 0
    while path.is_symlink() and links < _MOST_LINKS:
        path, links = path.parent / path.readlink(), links + 1
    return str(path) if CHECKPOINT_NAME.fullmatch(path.name) else file
