"""The loss over the memory bank: VISSL's ``NCELossWithMemory`` and ours, on the same embeddings.

A call is what a training step asks of it: the draw, two heads' terms, their gradient, and the
bank's update. VISSL's estimators are ``nce`` and ``info_nce`` (its ``cross_entropy``);
``nce_softmax`` is compared with its ``nce``. All is in one process: the sharded bank is one shard
of all rows, which shows what its bookkeeping costs and not what its communication does. Where VISSL
is not installed, ours is measured alone. With one thread on a
CPU, seconds are its CPU time; on a GPU they are of CUDA events.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.timing import device_of, interleave, peak_extra_bytes, ratio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from torch import Tensor

_DIM, _TERMS = 128, 2
_NORM_CONSTANT = 2_876_934.0  # VISSL's own at ImageNet's size; both losses get it
_PEER = ("replicated", "vissl")
_HEADERS = {
    "estimator": "estimator",
    "batch": "B",
    "negatives": "N",
    "placement": "bank",
    "loss": "loss",
    "seconds_min": "s, min",
    "seconds_median": "s, median",
    "extra_bytes": "extra MB",
    "speedup_over_vissl": "times VISSL's speed",
    "memory_ratio_to_vissl": "of its memory",
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print.

    Returns:
        ``rows``, our loss with a draw for each image; ``vissl``, its loss; ``shared_draw``, our
        loss with one draw for the batch, which is a matrix product.

    Raises:
        SystemExit: a batch of more images than the bank has rows.
    """
    import torch

    if max(options.batch) > options.rows:
        raise SystemExit(
            f"pirl_plugin: --batch {max(options.batch)}: expected at most the {options.rows} "
            f"images of --rows, each once; lower it, or raise --rows"
        )

    torch.set_num_threads(options.threads)
    device = device_of(options)
    bench = _Bench(options.rows, options.dtype, device, options.rounds)
    rows = []
    for batch in options.batch:
        for count in options.negatives:
            for estimator in ("nce", "nce_softmax", "info_nce"):
                rows += bench.measure(estimator, batch, count)
    shown = [dict(row, extra_bytes=row["extra_bytes"] / 1e6) for row in rows]
    print(tabulate([{h: row[k] for k, h in _HEADERS.items()} for row in shown], "keys", ".3g"))
    figures: dict[str, Any] = {
        "bank_rows": options.rows,
        "dtype": options.dtype,
        "threads": options.threads,
    }
    kinds = {"rows": "ours", "vissl": "vissl", "shared_draw": "ours, one draw"}
    for kind, loss in kinds.items():
        figures[kind] = [row for row in rows if row["loss"] == loss]
    return figures


class _Bench:
    """Both losses, each with one bank, whatever the batch and the number of negatives are."""

    def __init__(self, rows: int, dtype: str, device: str, rounds: int) -> None:
        import torch

        from pirl_plugin.loss import PIRLLoss

        self.device, self.rounds = device, rounds
        one_thread = device == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if one_thread else time.perf_counter
        self.vissl: Any = None
        if importlib.util.find_spec("vissl") is None:
            print("VISSL's loss left out: VISSL is not installed")
        else:
            self.vissl = vissl_loss(rows, _DIM, 1, _NORM_CONSTANT).to(device)
        self.ours = {
            placement: PIRLLoss(
                rows,
                embedding_dim=_DIM,
                norm_constant=_NORM_CONSTANT,
                bank={"placement": placement, "dtype": dtype},
            ).to(device)
            for placement in ("replicated", "sharded")
        }

    def measure(self, estimator: str, batch: int, negatives: int) -> list[dict[str, Any]]:
        """Rows of the table: VISSL's loss, ours in both placements, and ours with one draw."""
        case = (estimator, batch, negatives)
        calls = {(p, "ours"): self._ours(p, "per_image", *case) for p in self.ours}
        calls["replicated", "ours, one draw"] = self._ours("replicated", "per_batch", *case)
        if self.vissl is not None and batch == 1:
            print("VISSL's loss left out at B = 1: it takes two images or more")
        elif self.vissl is not None:
            calls[_PEER] = self._vissl(*case)
        for call in calls.values():  # compiles, and makes what is made once
            call()
        extra = {key: peak_extra_bytes(call, self.device) for key, call in calls.items()}
        timed = {" ".join(key): call for key, call in calls.items()}
        times = interleave(timed, self.rounds, device=self.device, clock=self.clock).values()
        seconds = dict(zip(calls, times, strict=True))
        rows = []
        for key in calls:
            speedup = share = None
            if _PEER in calls:
                speedup = ratio(seconds[_PEER], seconds[key])
                share = extra[key] / extra[_PEER]
            rows.append(
                {
                    "device": self.device,
                    "estimator": estimator,
                    "batch": batch,
                    "negatives": negatives,
                    "placement": key[0],
                    "loss": key[1],
                    "peer_estimator": "info_nce" if estimator == "info_nce" else "nce",
                    "processes": 1,
                    "seconds_min": min(seconds[key]),
                    "seconds_median": statistics.median(seconds[key]),
                    "extra_bytes": extra[key],
                    "speedup_over_vissl": speedup,
                    "memory_ratio_to_vissl": share,
                }
            )
        return rows

    def _ours(
        self, placement: str, draw: str, estimator: str, batch: int, negatives: int
    ) -> Callable[[], Any]:
        loss = self.ours[placement]
        output, target = self._batch(batch)

        def step() -> None:
            loss.config.estimator = estimator
            loss.config.num_negatives, loss.config.negatives = negatives, draw
            loss(output[-1], output[:-1], target).backward()
            loss.update(target, output[-1])

        return step

    def _vissl(self, estimator: str, batch: int, negatives: int) -> Callable[[], Any]:
        import torch

        loss = self.vissl
        output, target = self._batch(batch)

        def step() -> None:
            loss.loss_type = "cross_entropy" if estimator == "info_nce" else "nce"
            loss.nce_average.loss_type = loss.loss_type
            loss.xe_criterion = torch.nn.CrossEntropyLoss()
            loss.nce_average.params[0] = negatives
            loss(output, target).backward()

        return step

    def _batch(self, batch: int) -> tuple[list[Tensor], Tensor]:
        import torch

        generator = torch.Generator().manual_seed(batch)
        rows = self.ours["replicated"].bank.num_rows
        output = [
            torch.randn(batch, _DIM, generator=generator).to(self.device).requires_grad_()
            for _ in range(_TERMS)
        ]
        target = torch.randperm(rows, generator=generator)[:batch]
        return output, target.to(self.device)


def vissl_loss(
    num_rows: int, dim: int, num_negatives: int, norm_constant: float, loss_type: str = "nce"
) -> Any:
    """Its ``NCELossWithMemory`` on two heads, each with weight 0.5, the bank fed by the second."""
    from vissl.config import AttrDict
    from vissl.losses.nce_loss import NCELossWithMemory

    memory = {
        "memory_size": num_rows,
        "embedding_dim": dim,
        "momentum": 0.5,
        "norm_init": True,
        "update_mem_on_forward": False,
    }
    config = {
        "norm_embedding": True,
        "temperature": 0.07,
        "loss_weights": [0.5, 0.5],
        "norm_constant": norm_constant,
        "loss_type": loss_type,
        "update_mem_with_emb_index": 1,
        "negative_sampling_params": {"num_negatives": num_negatives, "type": "random"},
        "memory_params": memory,
        "num_train_samples": num_rows,
    }
    return NCELossWithMemory(AttrDict(config))
