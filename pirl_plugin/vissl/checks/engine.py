"""Refuse to train a configuration that is for another of the host's scripts than its engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin.utils.our_configs import SVM_SCRIPTS, is_ours
from pirl_plugin.vissl.checks.keys import find
from pirl_plugin.vissl.checks.refusal import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TRAINS = "train"  # engine_name
_FEATURES_ONLY = "MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY"


def check_engine(config: Mapping[str, Any], engine_name: object, overrides: Sequence[str]) -> None:
    """Refuse to train what has features alone, and no output for a loss: the SVMs' configurations.

    Args:
        config: the host's, or a mapping of the same shape.
        engine_name: that it is to run with; the SVM scripts ask for another one.
        overrides: of the command line, which name the config.

    Raises:
        SystemExit: which script the configuration is for.
    """
    if engine_name != _TRAINS or not is_ours(config) or not find(config, _FEATURES_ONLY):
        return
    given = next((override for override in overrides if override.startswith("config=")), None)
    name = (given or "").removeprefix("config=")
    script = SVM_SCRIPTS.get(name, SVM_SCRIPTS["benchmark/pirl/svm_voc07"])
    refuse(
        f"{given or f'config.{_FEATURES_ONLY} = true'}: expected VISSL's SVM script, which "
        f"extracts features first; write python -m {script} {given or 'config=NAME'} …"
    )
