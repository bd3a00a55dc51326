"""The loss over the memory bank: VISSL's ``NCELossWithMemory`` and ours, on the same embeddings.

A call does what the loss does in a training step: draw negatives, compute two terms and their
gradients, update the bank. ``info_nce`` is compared with VISSL's ``cross_entropy``, others with
``nce``.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from shared import add_device, add_rounds, add_rows, new_parser, print_table, report
from timing import interleave, peak_extra_bytes, summary
from torch import Tensor

import pirl_plugin.vissl  # noqa: F401 (it installs the import hook)
from pirl_plugin import cli
from pirl_plugin.method.estimators import ESTIMATORS
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.system.arguments import WholeNumber

_DIM = 128
_Z = 2_876_934.0  # VISSL's norm_constant for ImageNet


def main(arguments: list[str]) -> None:
    """Run the script."""
    parser = new_parser("loss.py", "the loss over the memory bank: time and memory")
    add_device(parser)
    add_rows(parser)
    add = parser.add_argument
    add(
        "--batch",
        type=WholeNumber(1),
        nargs="+",
        default=[32],
        help="batch size (default: 32)",
    )
    add("--negatives", type=WholeNumber(1), nargs="+", default=[32_000], help="N (default: 32,000)")
    add_rounds(parser, 5)
    report(run, parser.parse_args(arguments))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print.

    Returns:
        ``rows``, our loss with one draw per image; ``vissl``, VISSL's loss; ``shared_draw``, our
        loss with one draw per batch, which is a matrix product.
    """
    torch.set_num_threads(1)
    loss = PIRLLoss(
        options.rows, embedding_dim=_DIM, num_negatives=options.negatives[0], norm_constant=_Z
    ).to(options.device)
    loss.step = 1000  # skip the check for visited rows, because the rows are repeated here
    vissl = None
    if importlib.util.find_spec("vissl"):
        vissl = vissl_loss(options.rows, _DIM, 1, _Z).to(options.device)
    rows: list[dict[str, Any]] = []
    for batch, negatives, name in itertools.product(options.batch, options.negatives, ESTIMATORS):
        generator = torch.Generator().manual_seed(batch)
        embeddings = torch.randn(2, batch, _DIM, generator=generator).to(options.device)
        f, g = (e.requires_grad_() for e in embeddings.unbind())
        index = torch.randperm(options.rows, generator=generator)[:batch].to(options.device)
        calls: dict[str, Callable[[], None]] = {}
        for draw in ("per_image", "per_batch"):
            settings = {"estimator": name, "num_negatives": negatives, "negatives": draw}
            calls[draw] = partial(_step, loss, settings, f, g, index)
        if vissl is not None and batch > 1:  # VISSL's loss squeezes the dimension of one image
            calls["vissl"] = partial(_vissl_step, vissl, name, negatives, f, g, index)
        case = {
            "device": options.device,
            "estimator": name,
            "batch": batch,
            "negatives": negatives,
        }
        rows += [{**case, **row} for row in _measure(calls, options)]
    print_table(rows)
    kinds = {"rows": "per_image", "vissl": "vissl", "shared_draw": "per_batch"}
    rows_of_kind = {key: [row for row in rows if row["loss"] == kinds[key]] for key in kinds}
    return {"bank_rows": options.rows, "dtype": "float32", "threads": 1, **rows_of_kind}


def _measure(calls: dict[str, Callable[[], None]], options: argparse.Namespace) -> Any:
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    for call in calls.values():  # compiles
        call()
    extra = {name: peak_extra_bytes(call, options.device) for name, call in calls.items()}
    seconds = interleave(calls, options.rounds, device=options.device, clock=clock)
    for name, times in seconds.items():
        share = extra[name] / extra["vissl"] if extra.get("vissl") else None
        row = {"placement": "replicated", "loss": name, **summary(times, seconds.get("vissl"))}
        yield {**row, "extra_bytes": extra[name], "memory_ratio_to_vissl": share}


def _step(loss: PIRLLoss, settings: dict[str, Any], f: Tensor, g: Tensor, index: Tensor) -> None:
    vars(loss.config).update(settings)
    loss(f, g, index).backward()
    loss.update(index, f)


def _vissl_step(loss: Any, name: str, negatives: int, f: Tensor, g: Tensor, index: Tensor) -> None:
    loss.loss_type = loss.nce_average.loss_type = "cross_entropy" if name == "info_nce" else "nce"
    loss.xe_criterion = torch.nn.CrossEntropyLoss()
    loss.nce_average.params[0] = negatives
    loss([g, f], index).backward()


def vissl_loss(num_rows: int, dim: int, num_negatives: int, norm_constant: float) -> Any:
    """Return VISSL's loss on two heads with weights 0.5; the second head updates the bank."""
    from vissl.config import AttrDict
    from vissl.losses.nce_loss import NCELossWithMemory

    bank = {"memory_size": num_rows, "embedding_dim": dim, "momentum": 0.5, "norm_init": True}
    config = {
        "norm_embedding": True,
        "temperature": 0.07,
        "loss_weights": [0.5, 0.5],
        "norm_constant": norm_constant,
        "loss_type": "nce",
        "update_mem_with_emb_index": 1,
        "negative_sampling_params": {"num_negatives": num_negatives, "type": "random"},
        "memory_params": {**bank, "update_mem_on_forward": False},
        "num_train_samples": num_rows,
    }
    return NCELossWithMemory(AttrDict(config))


if __name__ == "__main__":
    cli.main(main)
