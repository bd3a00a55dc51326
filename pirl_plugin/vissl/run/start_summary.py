"""The first lines of a run, and a console without the host's log, which goes to ``log.txt``.

``PIRL_PLUGIN_CONSOLE=log`` shows the host's whole log on the console.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.console import LINE, put

if TYPE_CHECKING:
    from vissl.config import AttrDict


_VARIABLE = "PIRL_PLUGIN_CONSOLE"
# Beginnings of the host's messages that are shown: initial weights, and results of its SVMs.
_SHOWN = ("Resume from file", "Loading checkpoint from", "AP for various layers", "k-value: ")
# Beginnings of the host's warnings that are not shown: both are as this plugin wants it.
_EXPECTED = ("Selecting a CPU device", "Torch distributed has already been initialized")


def shows_page() -> bool:
    """Return whether the console shows progress instead of the host's log."""
    return os.environ.get(_VARIABLE) == "page"


def page_of_our_runs(module: Any) -> None:
    """Wrap ``setup_logging``: if progress is shown, the host's log goes only to ``log.txt``."""
    original = module.setup_logging

    @functools.wraps(original)
    def setup_logging(name: str, *args: object, **kwargs: object) -> None:
        original(name, *args, **kwargs)
        for handler in logging.getLogger(name).handlers if shows_page() else ():
            if getattr(handler, "stream", None) is sys.stdout:
                handler.addFilter(_for_a_page)
                handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    module.setup_logging = setup_logging


def _for_a_page(record: logging.LogRecord) -> bool:
    """Return whether the console shows a message of the host beside the progress."""
    text = str(record.msg)
    is_warning = record.levelno >= logging.WARNING and not text.startswith(_EXPECTED)
    is_shown = is_warning or text.startswith(_SHOWN)
    if is_shown:
        LINE.close()
    return is_shown


def start_page(config: AttrDict, is_first: bool) -> None:
    """Show progress instead of the host's log; the first rank prints a summary of the run."""
    import vissl

    from pirl_plugin import __version__

    os.environ.setdefault(_VARIABLE, "page")  # spawned ranks read it too
    if not is_first:
        return
    split = config.DATA.TEST if config.TEST_ONLY else config.DATA.TRAIN
    data = ", ".join(map(str, split.DATA_PATHS or split.DATASET_NAMES))
    weights = config.MODEL.WEIGHTS_INIT.PARAMS_FILE or "random"
    host_version = getattr(vissl, "__version__", "of unknown version")
    put(
        f"pirl_plugin {__version__}, VISSL {host_version}\n"
        f"data      {data}\n"
        f"model     {config.MODEL.TRUNK.NAME}, {config.LOSS.name}, initial weights: {weights}\n"
        f"logs      {config.CHECKPOINT.DIR}\n"
    )
