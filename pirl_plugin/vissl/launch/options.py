"""Refuse options that ``pirl-plugin train`` does not have, and say what to write in their place."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pirl_plugin.vissl.launch.failures import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

_KNOWN = {"--max-restarts": "--max-restarts N"}
_OVERRIDES = {  # options of other commands, and of other programs -> what this one takes
    "--config": "config=NAME",
    "--data": "config.DATA.TRAIN.DATA_PATHS=[DIR]",
    "--epochs": "config.OPTIMIZER.num_epochs=N",
    "--out": "config.CHECKPOINT.DIR=DIR",
    "--seed": "config.SEED_VALUE=N",
}
_NEAR = 0.6  # likeness from which a name is taken for a typo


def check_options(words: Sequence[str]) -> None:
    """Refuse a word that begins with a dash and is no option.

    Args:
        words: of the command line, without ``--max-restarts N``.

    Raises:
        SystemExit: the first such word.
    """
    for word in words:
        if not word.startswith("-"):
            continue
        every = _KNOWN | _OVERRIDES
        near = difflib.get_close_matches(word.partition("=")[0], every, 1, _NEAR)
        instead = every[near[0]] if near else "config.KEY=VALUE"
        refuse(f"{word}: expected {', '.join(_KNOWN)} or KEY=VALUE; write {instead}")
