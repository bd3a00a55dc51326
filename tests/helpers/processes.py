"""Run a function in several processes and collect the results."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, multiprocessing

if TYPE_CHECKING:
    from collections.abc import Callable


def run_in_processes(
    function: Callable[..., Any], world_size: int, *arguments: Any, backend: str = "gloo"
) -> list[Any]:
    """Call ``function(rank, world_size, *arguments)`` in each process; return results by rank."""
    # Forks start in 0.1 s instead of 5, with everything imported, but cannot use CUDA.
    method = "spawn" if torch.cuda.is_initialized() else "fork"
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(
            _rank_main,
            (function, world_size, folder, arguments, backend),
            nprocs=world_size,
            start_method=method,
        )
        return [
            torch.load(Path(folder, f"{rank}.pt"), weights_only=True) for rank in range(world_size)
        ]


def _rank_main(
    rank: int,
    function: Callable[..., Any],
    world_size: int,
    folder: str,
    arguments: tuple[Any, ...],
    backend: str,
) -> None:
    from pirl_plugin.vissl.import_hook import finder

    finder.install()
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    torch.save(function(rank, world_size, *arguments), Path(folder, f"{rank}.pt"))
    distributed.barrier()
    distributed.destroy_process_group()
