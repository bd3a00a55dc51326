"""The training runs whose losses, gradients and bank are recorded."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from tests.helpers import subject
from tests.helpers.recording import generator, project, sha

INPUT_DIM, LEARNING_RATE = 12, 0.3
DETAILED_STEPS = (1, 5, 20)  # and the last


@dataclass(frozen=True)
class Run:
    """A short training.

    Attributes:
        keys: of ``LOSS.pirl_loss``.
        world_size: processes.
        steps: of training.
        batch: images of all ranks together.
        outputs: heads; the last is f.
        awkward_rows: whether rows repeat, within and across ranks, and some are invalid; in step 4
            all are.
        given_negatives: whether the draw is handed in.
    """

    keys: dict[str, Any]
    world_size: int = 1
    steps: int = 20
    batch: int = 8
    outputs: int = 2
    awkward_rows: bool = False
    given_negatives: bool = False


_SMALL = {"num_train_samples": 61, "embedding_dim": 16, "num_negatives": 37}
_TINY = {"num_train_samples": 19, "embedding_dim": 8, "num_negatives": 11}
_ESTIMATORS = ("nce", "nce_softmax", "info_nce")
_ENGINES = ("plain", "blocked", "triton")
_PLACEMENTS = ("replicated", "sharded")


def _grid() -> dict[str, Run]:
    runs = {}
    for estimator, engine, placement, world_size in itertools.product(
        _ESTIMATORS, _ENGINES, _PLACEMENTS, (1, 2)
    ):
        tiny = engine == "triton"  # the interpreter takes milliseconds a program
        sizes = _TINY if tiny else _SMALL
        keys = {**sizes, "estimator": estimator, "scores": engine, "bank": {"placement": placement}}
        ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
        runs[f"{estimator}, {engine}, {placement}, {ranks}"] = Run(
            keys, world_size, steps=5 if tiny else 20, batch=4 if tiny else 8
        )
    return runs


def _others() -> dict[str, Run]:
    def run(keys: dict[str, Any], sizes: dict[str, int] = _SMALL, **more: Any) -> Run:
        return Run({**sizes, "scores": "plain", **keys}, **{"steps": 6, **more})

    runs = {
        "one draw for the batch": run({"negatives": "per_batch", "scores": "auto"}),
        "one draw for the batch, info_nce": run(
            {"negatives": "per_batch", "estimator": "info_nce", "scores": "blocked"}
        ),
        "without replacement": run({"replacement": False}),
        "without replacement, one draw": run(
            {"replacement": False, "negatives": "per_batch", "estimator": "nce_softmax"}
        ),
        "without replacement, sharded, 2 ranks": run(
            {"replacement": False, "num_negatives": 20, "bank": {"placement": "sharded"}},
            world_size=2,
        ),
        "awkward rows": run({}, awkward_rows=True),
        "awkward rows, blocked, info_nce": run(
            {"scores": "blocked", "estimator": "info_nce"}, awkward_rows=True
        ),
        "awkward rows, 2 ranks": run({}, awkward_rows=True, world_size=2),
        "awkward rows, sharded, 2 ranks": run(
            {"scores": "blocked", "bank": {"placement": "sharded"}}, awkward_rows=True, world_size=2
        ),
        "lambda 0": run({"lambda_invariance": 0}),
        "lambda 1": run({"lambda_invariance": 1}),
        "one output": run({"lambda_invariance": 0}, outputs=1),
        "three outputs": run({"lambda_invariance": 0.4}, outputs=3),
        "term weights": run({"term_weights": [0.2, 0.3, 0.9], "scores": "blocked"}, outputs=3),
        "term weights with a zero": run({"term_weights": [0.5, 0, 1.0]}, outputs=3),
        "term weights, triton": run(
            {"term_weights": [0.2, 0.3, 0.5], "scores": "triton"},
            _TINY, outputs=3, steps=2, batch=3,
        ),
        "Z is given": run({"norm_constant": 123.0}),
        "Z moves": run({"norm_constant_momentum": 0.9}),
        "Z moves, blocked, 2 ranks": run(
            {"norm_constant_momentum": 0.9, "scores": "blocked"}, world_size=2
        ),
        "momentum 0.9": run({"bank": {"momentum": 0.9}}),
        "momentum 0": run({"bank": {"momentum": 0}}),
        "seed 3": run({"bank": {"seed": 3}}),
        "temperature 0.3": run({"temperature": 0.3, "scores": "auto"}),
        "a large table": run({"num_train_samples": 300, "num_negatives": 20}),  # rows are gathered
        "negatives are given": run({}, given_negatives=True),
        "negatives are given, sharded, 2 ranks": run(
            {"scores": "blocked", "estimator": "nce_softmax", "bank": {"placement": "sharded"}},
            given_negatives=True, world_size=2,
        ),
    }  # fmt: skip
    for engine in _ENGINES:
        tiny: dict[str, Any] = {"steps": 2, "batch": 3} if engine == "triton" else {}
        sizes = _TINY if tiny else _SMALL
        for dtype in ("bfloat16", "float16"):
            keys = {"scores": engine, "bank": {"dtype": dtype}, "estimator": "info_nce"}
            runs[f"{dtype} bank, {engine}"] = run(keys, sizes, **tiny)
    for estimator in _ESTIMATORS:
        blocks = {"scores": "blocked", "num_negatives": 9000, "estimator": estimator}
        runs[f"several blocks, {estimator}"] = run(blocks, steps=3, batch=2)
        tiles = {"scores": "triton", "num_negatives": 300, "estimator": estimator}
        runs[f"several tiles, triton, {estimator}"] = run(tiles, _TINY, steps=2, batch=2)
    return runs


RUNS = {**_grid(), **_others()}


def interpreted(name: str) -> bool:
    """Whether a run needs Triton's interpreter."""
    return RUNS[name].keys["scores"] == "triton"


def record_runs(names: list[str]) -> dict[str, dict[str, Any]]:
    """Records of runs of one world size, which share their processes."""
    (world_size,) = {RUNS[name].world_size for name in names}
    if world_size == 1:
        ranks = [_train_all(0, 1, names)]
    else:
        ranks = subject.run_in_processes(_train_all, world_size, names)
    return {name: _join([rank[name] for rank in ranks]) for name in names}


def _train_all(rank: int, world_size: int, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    return {name: _train(RUNS[name], rank) for name in names}


def _train(run: Run, rank: int) -> list[dict[str, Any]]:
    """Results of each step on this rank.

    The model is linear and SGD moves it: an error of one step shows in those after it.
    """
    rng = generator(1)
    num_rows, dim, num_negatives = (run.keys[key] for key in _SMALL)
    weights = torch.tensor(rng.standard_normal((run.outputs, INPUT_DIM, dim))).float()
    mine = slice(rank * run.batch // run.world_size, (rank + 1) * run.batch // run.world_size)
    loss = subject.make_loss(**run.keys)
    results = []
    for step in range(1, run.steps + 1):
        inputs = torch.tensor(rng.standard_normal((run.batch, INPUT_DIM))).float()[mine]
        target = torch.tensor(rng.integers(0, num_rows, run.batch))
        given = torch.tensor(rng.integers(0, num_rows, (run.batch, num_negatives)))
        if run.awkward_rows:
            target[1] = target[-1] = target[-2]
            target[[0, 2]] = -1
            target = target if step != 4 else torch.full_like(target, -1)
        target = target[mine]
        outputs = [(inputs @ weight).requires_grad_() for weight in weights]
        negatives = given[mine] if run.given_negatives else None
        value = loss(outputs if run.outputs > 1 else outputs[0], target, negatives)
        value.backward()
        gradients = torch.stack([output.grad for output in outputs])  # type: ignore[misc]
        moved = subject.update(loss, target, outputs[-1])
        slope = inputs.T @ gradients
        if run.world_size > 1:
            distributed.all_reduce(slope)
        weights = weights - LEARNING_RATE / run.world_size * slope
        results.append(
            {
                "loss": value.detach(),
                "gradient": gradients,
                "bank": subject.bank_rows(loss),
                "visited": subject.visited(loss).clone(),
                "moved": moved,
                "norm_constant": subject.norm_constant(loss),
                "terms": subject.terms(loss),
            }
        )
    return results


def _join(ranks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The record of a run, of the results of all its ranks."""
    record: dict[str, Any] = {"exact": {}, "bits": {}, "series": {}, "projections": {}}
    series = record["series"]
    for step, results in enumerate(zip(*ranks, strict=True), start=1):
        for number, result in enumerate(results):
            series.setdefault(f"loss of rank {number}", []).append(float(result["loss"]))
        first = results[0]
        constant = first["norm_constant"]
        series.setdefault("Z", []).append(None if math.isnan(constant) else constant)
        if step not in DETAILED_STEPS and step != len(ranks[0]):
            continue
        at = f"at step {step}"
        gradient = torch.stack([result["gradient"] for result in results])
        for name, tensor in (("gradient", gradient), ("bank", first["bank"])):
            record["bits"][f"{name} {at}"] = sha(tensor)
            record["projections"][f"{name} {at}"] = project(tensor)
        record["exact"][f"visited {at}"] = sha(*(result["visited"] for result in results))
        record["exact"][f"rows moved {at}"] = [int(result["moved"][1]) for result in results]
        for name, value in first["terms"].items():
            series.setdefault(f"term {name}", []).append(value)
        series.setdefault("summed norms", []).extend(float(r["moved"][0]) for r in results)
    _check_agreement(ranks)
    if all(constant is None for constant in series["Z"]):
        del series["Z"]
    return record


def _check_agreement(ranks: list[list[dict[str, Any]]]) -> None:
    """See that bank and Z are the same on all ranks."""
    for results in zip(*ranks, strict=True):
        for result in results[1:]:
            assert torch.equal(result["bank"], results[0]["bank"]), "the ranks' banks differ"
            one, other = (torch.tensor(r["norm_constant"]) for r in (result, results[0]))
            assert torch.equal(one.nan_to_num(-1), other.nan_to_num(-1)), "the ranks' Z differ"
