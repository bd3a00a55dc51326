"""The one place that chooses an engine, and that refuses one."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.losses.engines.base import is_shared
from pirl_plugin.losses.engines.blocked import BlockedSums
from pirl_plugin.losses.engines.plain import PlainEngine, prefers_whole_table
from pirl_plugin.losses.engines.streamed import StreamedEngine
from pirl_plugin.losses.engines.triton_probe import triton_runs, why_not
from pirl_plugin.losses.estimators.base import Estimator, StreamedEstimator

if TYPE_CHECKING:
    from pirl_plugin.losses.engines.base import ContrastBatch, Engine


def make_engine(scores: str, batch: ContrastBatch) -> Engine:
    """Choose how a batch is contrasted with its draw.

    Args:
        scores: ``plain``, ``blocked`` (any device), ``triton`` (CUDA), or ``auto``: ``plain`` where
            the batch shares a draw, ``triton`` on CUDA where it runs, and else ``blocked``, or
            ``plain`` for a small table.
        batch: the batch.

    Raises:
        ValueError: ``triton`` is asked for where it cannot run.
    """
    draw = batch.draw
    if not isinstance(draw, Tensor) and not draw.in_kernel:
        batch = replace(batch, draw=draw.all())
    if scores == "auto":
        scores = _best(batch)
    if scores == "plain" or batch.queries.shape[1] == 0:  # an empty batch has nothing to stream
        return PlainEngine(batch)
    if scores == "blocked":
        return StreamedEngine(batch, BlockedSums)
    _check_triton(batch.table.device, batch.queries.dtype)
    from pirl_plugin.losses.engines.triton import TritonSums  # needs the package triton

    return StreamedEngine(batch, TritonSums)


def check_form(scores: str, estimator: Estimator) -> None:
    """See that an estimator has the form that the engines of ``scores`` use.

    Raises:
        ValueError: it is written for ``plain`` alone, and ``scores`` is something else.
    """
    if scores != "plain" and not isinstance(estimator, StreamedEstimator):
        raise ValueError(
            f"LOSS.pirl_loss.scores = {scores}: expected plain, the only form that the estimator "
            f"{estimator.name} has; set scores: plain, or derive it from StreamedEstimator"
        )


def _best(batch: ContrastBatch) -> str:
    queries, table, draw = batch.queries, batch.table, batch.draw
    if is_shared(draw):
        return "plain"
    if table.device.type == "cuda" and queries.dtype == torch.float32 and triton_runs(table.device):
        return "triton"
    terms, size, _ = queries.shape
    whole = prefers_whole_table(terms, size, len(table), batch.num_negatives)
    return "plain" if whole and table.dtype == queries.dtype else "blocked"


def _check_triton(device: torch.device, dtype: torch.dtype) -> None:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    runs = device.type == "cuda" or interpreted
    if importlib.util.find_spec("triton") is None or not runs or dtype != torch.float32:
        raise ValueError(
            f"LOSS.pirl_loss.scores = triton for {dtype} on {device.type}: expected float32 "
            f"embeddings, a CUDA device and the triton package; set it to auto or blocked"
        )
    reason = None if interpreted else why_not(device)
    if reason is not None:
        raise ValueError(
            f"LOSS.pirl_loss.scores = triton: expected Triton to run, but {reason}; set it to auto "
            f"or blocked"
        )
