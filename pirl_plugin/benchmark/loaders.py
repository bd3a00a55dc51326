"""The same pipelines in loader workers: start-up, throughput, memory; a process for each.

VISSL's run is as it is: every worker of every epoch imports the host. Ours forks its workers from
a server that has imported it and compiled the kernels, as a rank of a run does.
"""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tabulate import tabulate

_BATCH = 32
_BATCHES = 24
_HEADERS = {
    "pipeline": "pipeline",
    "workers": "workers",
    "first_batch_s": "first batch, s",
    "later_first_batch_s": "… of a later epoch",
    "images_per_s": "images/s",
    "worker_rss_mb": "RSS a worker, MB",
    "worker_pss_mb": "PSS a worker, MB",
}


def loader_table(folder: Path, workers: int) -> list[dict[str, Any]]:
    """Measure and print VISSL's jigsaw and ours with ``workers`` loader workers.

    Raises:
        RuntimeError: a measuring process failed; quotes its end.
    """
    rows = []
    for pipeline in ("vissl", "fused"):
        command = [sys.executable, "-m", __name__, pipeline, str(folder), str(workers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    print(tabulate([{h: row[k] for k, h in _HEADERS.items()} for row in rows], "keys", ".3g"))
    return rows


def measure(pipeline: str, folder: Path, workers: int) -> dict[str, Any]:
    """Two epochs of ``_BATCHES`` batches of the jigsaw through a loader.

    Returns:
        Seconds to the first batch of both epochs, images a second after the second's first batch,
        and the workers' mean memory at its end. RSS counts a page that processes share in each of
        them; PSS divides it among them, so that PSS adds up to what the machine needs.
    """
    import torch

    from pirl_plugin.benchmark.peers import our_pipeline, vissl_pipeline

    if pipeline == "vissl":
        made = vissl_pipeline(folder, "jigsaw")
        assert made is not None
        dataset, collate = made
    else:
        preload = ["pirl_plugin.vissl.preload"]
        multiprocessing.set_forkserver_preload(preload)
        dataset, collate = our_pipeline(folder, "jigsaw")
    count = dataset.num_samples()
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=_BATCH,
        sampler=[index % count for index in range(_BATCH * _BATCHES)],
        num_workers=workers,
        collate_fn=collate,
        multiprocessing_context="forkserver",
    )
    first = []
    for _ in range(2):
        start = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first.append(time.perf_counter() - start)
        start = time.perf_counter()
        for left, _batch in enumerate(batches, start=2):
            if left == _BATCHES - 1:  # the workers are done, and not yet gone
                memory = _memory([process.pid for process in multiprocessing.active_children()])
        rate = (_BATCHES - 1) * _BATCH / (time.perf_counter() - start)
    return {
        "pipeline": pipeline,
        "workers": workers,
        "first_batch_s": first[0],
        "later_first_batch_s": first[1],
        "images_per_s": rate,
        "worker_rss_mb": memory["Rss"],
        "worker_pss_mb": memory["Pss"],
    }


def _memory(processes: list[int | None]) -> dict[str, float]:
    """Mean over the processes, in MB, as Linux reports it."""
    totals = {"Rss": 0.0, "Pss": 0.0}
    for process in processes:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in totals:
                totals[name] += int(rest.split()[0]) / 1000 / len(processes)
    return totals


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
