"""What a run spends before its first step: imports, the loss, the first batch, a checkpoint."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark import loaders
from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.timing import interleave, ratio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_DIM = 128


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns ``{"rows": [...]}``."""
    rows = _imports(options.rounds) + _losses(options.rows, options.rounds)
    rows += _checkpoints(options.model_mb * 10**6, options.rows * _DIM * 4, options.rounds)
    if options.workers:
        rows += _first_batches(options.data, options.workers)
    table = [
        {"what": row["what"], "s, ours": row["seconds_min"], "s, VISSL's": row["vissl_seconds_min"],
         "times faster": row["speedup_over_vissl"]} for row in rows
    ]  # fmt: skip
    print(tabulate(table, "keys", ".3g"))
    return {"rows": rows, "bank_rows": options.rows}


def _row(what: str, ours: list[float], vissl: list[float] | None = None) -> dict[str, Any]:
    return {
        "what": what,
        "seconds_min": min(ours),
        "seconds_median": statistics.median(ours),
        "vissl_seconds_min": min(vissl) if vissl else None,
        "speedup_over_vissl": ratio(vissl, ours) if vissl else None,
    }


def _imports(rounds: int) -> list[dict[str, Any]]:
    """Of this plugin, of the host with it, and of Python with and without the import hook."""

    def python(code: str, autoload: str = "1") -> Callable[[], Any]:
        environment = {**os.environ, "PIRL_PLUGIN_AUTOLOAD": autoload}
        command = [sys.executable, "-c", code]
        return lambda: subprocess.run(command, env=environment, check=True, capture_output=True)

    seconds = interleave(
        {
            "python, import hook off": python("", autoload="0"),
            "python, import hook on": python(""),
            "import pirl_plugin": python("import pirl_plugin"),
            "import vissl.engines": python("import vissl.engines"),
        },
        rounds,
    )
    return [_row(what, times) for what, times in seconds.items()]


def _losses(rows: int, rounds: int) -> list[dict[str, Any]]:
    from pirl_plugin.benchmark.loss import vissl_loss
    from pirl_plugin.loss import PIRLLoss

    seconds = interleave(
        {
            "ours": lambda: PIRLLoss(rows, embedding_dim=_DIM),
            "vissl": lambda: vissl_loss(rows, _DIM, 32_000, -1.0),
        },
        rounds,
        warm_up=0,
    )
    return [_row(f"loss of {rows:,} rows", seconds["ours"], seconds["vissl"])]


def _checkpoints(model_bytes: int, bank_bytes: int, rounds: int) -> list[dict[str, Any]]:
    """As a run of one process loads them, with the host's own ``broadcast_object`` and ours."""
    import torch
    from classy_vision.generic import distributed_util
    from classy_vision.generic.util import load_checkpoint

    ours = distributed_util.broadcast_object
    theirs = getattr(ours, "__wrapped__", None)  # there where this host was patched
    results = []
    for what, size in (("model", model_bytes), ("model and bank", model_bytes + bank_bytes)):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "checkpoint.torch"
            torch.save({"tensors": list(torch.zeros(10, size // 40).unbind())}, file)
            calls = {"ours": lambda file=file: ours(load_checkpoint(str(file)))}
            if theirs is not None:
                calls["vissl"] = lambda file=file: theirs(load_checkpoint(str(file)))
            seconds = interleave(calls, rounds, warm_up=0)
        title = f"checkpoint of {size / 1e6:,.0f} MB ({what})"
        results.append(_row(title, seconds["ours"], seconds.get("vissl")))
    return [*results, _save(model_bytes + bank_bytes, rounds)]


def _save(size: int, rounds: int) -> dict[str, Any]:
    """Ours looks for NaN, writes a new file, and waits for the disk; the host's is torch.save."""
    import torch

    from pirl_plugin.checkpoints.run_folder import check_finite
    from pirl_plugin.files import atomic_write

    content = {"tensors": list(torch.ones(10, size // 40).unbind())}

    def save(path: Path) -> None:
        check_finite(content, str(path))
        with atomic_write(path) as file:
            torch.save(content, file)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.torch"
        calls = {"ours": lambda: save(file), "vissl": lambda: torch.save(content, file)}
        seconds = interleave(calls, rounds, warm_up=0)
    title = f"saving a checkpoint of {size / 1e6:,.0f} MB"
    return _row(title, seconds["ours"], seconds["vissl"])


def _first_batches(data: Path | None, workers: int) -> list[dict[str, Any]]:
    with image_folder(data, 64) as folder:
        vissl, ours = loaders.loader_table(folder, workers)
    return [
        _row(f"first batch, {which} epoch", [ours[key]], [vissl[key]])
        for which, key in (("first", "first_batch_s"), ("later", "later_first_batch_s"))
    ]
