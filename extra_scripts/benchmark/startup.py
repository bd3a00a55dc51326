"""Measure a run's time before its first step: imports, the loss, a checkpoint."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from loss import vissl_loss
from shared import add_rounds, add_rows, new_parser, print_table, report
from timing import interleave, summary

import pirl_plugin.vissl  # noqa: F401 (it installs the import hook)
from pirl_plugin import cli
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.vissl.host_config import require_host

_DIM = 128
_MODEL = 194_000_000  # bytes for a ResNet-50 and its optimizer
_PROGRAMS = {  # title -> code, and whether the import hook is on
    "python, import hook off": ("", "0"),
    "python, import hook on": ("", "1"),
    "import pirl_plugin": ("import pirl_plugin", "1"),
    "import vissl.engines": ("import vissl.engines", "1"),
}


def main(arguments: list[str]) -> None:
    """Run the script."""
    parser = new_parser("startup.py", "imports, the loss, a checkpoint")
    add_rows(parser)
    add_rounds(parser, 3)
    options = parser.parse_args(arguments)
    require_host()
    report(run, options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; return ``rows``."""
    from vissl.utils import checkpoint as host

    rows: list[dict[str, Any]] = []

    def add(what: str, ours: Callable[[], Any], vissl: Callable[[], Any] | None = None) -> None:
        functions = {"ours": ours, "vissl": vissl} if vissl else {"ours": ours}
        seconds = interleave(functions, options.rounds, warm_up=0)
        row = {"what": what, **summary(seconds["ours"], seconds.get("vissl"))}
        rows.append({**row, "vissl_seconds_min": min(seconds["vissl"]) if vissl else None})

    for title, program in _PROGRAMS.items():
        add(title, partial(_python, *program))
    add(
        f"loss of {options.rows:,} rows",
        lambda: PIRLLoss(options.rows, embedding_dim=_DIM),
        lambda: vissl_loss(options.rows, _DIM, 32_000, -1.0),
    )
    size = _MODEL + options.rows * _DIM * 4
    title = f"a checkpoint of {size / 1e6:,.0f} MB (model and bank)"
    state = {"tensors": list(torch.ones(10, size // 40).unbind())}
    # This plugin has replaced both functions; each replacement keeps VISSL's.
    save: Any = host.save_checkpoint
    load: Any = host.load_and_broadcast_checkpoint
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/checkpoint.torch"
        # We write to another file, wait for the disk and rename it. VISSL writes in place.
        savers = [partial(function, folder, state) for function in (save, _original_of(save))]
        add(f"saving {title}", *savers)
        cpu = torch.device("cpu")
        loaders = [partial(function, file, cpu) for function in (load, _original_of(load))]
        add(f"loading {title}", *loaders)
    print_table(rows)
    return {"rows": rows, "bank_rows": options.rows}


def _original_of(replacement: Any) -> Callable[..., Any]:
    """Return the VISSL function that one of this plugin's functions replaces."""
    original: Callable[..., Any] = replacement.keywords["original"]
    return original


def _python(code: str, autoload: str) -> None:
    environment = {**os.environ, "PIRL_PLUGIN_AUTOLOAD": autoload}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)


if __name__ == "__main__":
    cli.main(main)
