"""Several processes that read a batch together, for a model that takes all cores meanwhile.

Each process has a share of the batch. One that has read its own goes on with what is left of the
others', so that a slow process holds up the batch by one image at most. Before a process reads a
sample it writes the number of the call at the sample's place in a table that all share. Two that do
so at the same moment both read the sample, which is the same for either: no lock is needed, and
none can be left behind by a process that is killed.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import pickle
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pirl_plugin.images.shared_bytes import SharedBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from numpy.typing import NDArray

MAX_BYTES = 2**30
"""Most that the views of a helper's samples may take; memory is taken as it is needed."""
MAX_PLACES = 2**16
"""Samples of a batch whose places in the table are their own; memory is taken as it is needed."""

_log = logging.getLogger(__name__)


class Readers:
    """Read the samples of a batch in this process and in helpers at once.

    A loader worker prepares batches while the model trains. On a GPU that is what is wanted; on a
    CPU the model's threads share their work out evenly, and the core that a worker takes keeps all
    of them waiting. Helpers work while the model does not: each takes an equal share of a batch,
    and this process the first. The samples are those of ``[dataset[row] for row in rows]``.

    A helper that is gone is named in one warning, and its share read here.

    Args:
        dataset: what is read; the samples are dicts with a dict of tensors in ``data``, and do not
            depend on what was read before. Each helper is sent a copy.
        count: helpers, at least 1.
        start: called first in each helper, with its number.
        method: how helpers are started: ``forkserver``, ``spawn`` or ``fork``.

    Example:
        >>> readers = Readers([{"data": {"view": torch.ones(2) * row}} for row in range(4)], 1)
        >>> [sample["data"]["view"].tolist() for sample in readers([3, 1, 2])]
        [[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]]
        >>> readers.close()
    """

    def __init__(
        self,
        dataset: Any,
        count: int,
        start: Callable[[int], None] | None = None,
        method: str = "forkserver",
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self._dataset = dataset
        self._helpers = []
        self._calls = 0
        self._table = SharedBytes(8 * (MAX_PLACES + 1))
        for number in range(count):
            pipe, theirs = context.Pipe()
            block = SharedBytes(MAX_BYTES)
            sent = (theirs, block, self._table, dataset, number, start)
            process = context.Process(target=_help, args=sent, daemon=True)
            process.start()
            theirs.close()  # or the end of the helper would go unnoticed
            self._helpers.append(_Helper(process, pipe, block))

    def __call__(self, rows: Sequence[int]) -> list[Any]:
        """Samples of ``rows``, in their order.

        Their tensors are overwritten by the next call: collate them before.

        Raises:
            Exception: what reading a sample raises.
        """
        self._calls += 1
        self._table.array.view(np.int64)[MAX_PLACES] = self._calls
        free = [helper for helper in tuple(self._helpers) if self._is_free(helper)]
        asked = free[: max(len(rows) - 1, 0)]
        shares = len(asked) + 1
        for share, helper in enumerate(asked, start=1):
            self._ask(helper, rows, share, shares)
        places = _places(self._table, self._calls, len(rows), 0, shares)
        samples = {place: self._dataset[rows[place]] for place in places}
        while len(samples) < len(rows) and (owing := [helper for helper in asked if helper.owes]):
            ready = wait([helper.pipe for helper in owing])
            for helper in (helper for helper in owing if helper.pipe in ready):
                samples.update(self._answer(helper))
        # What a helper could not read is tried here, and raises here what is to be raised.
        return [
            samples[place] if place in samples else self._dataset[row]
            for place, row in enumerate(rows)
        ]

    def _is_free(self, helper: _Helper) -> bool:
        """Whether a helper is there and has answered: one that is late is not asked again."""
        if helper.owes and helper.pipe.poll():
            self._answer(helper)  # to an earlier call, which did without
        return helper in self._helpers and not helper.owes

    def _ask(self, helper: _Helper, rows: Sequence[int], share: int, shares: int) -> None:
        try:
            helper.pipe.send((self._calls, rows, share, shares))
            helper.owes = True
        except OSError:
            self._gone(helper)

    def _answer(self, helper: _Helper) -> dict[int, Any]:
        """Samples that a helper has read, by place; waits until it has come to the end."""
        helper.owes = False
        try:
            pickled, sizes = helper.pipe.recv()
        except (EOFError, OSError):
            self._gone(helper)
            return {}
        block = helper.block.array.data
        arrays = [block[e - s : e] for s, e in zip(sizes, itertools.accumulate(sizes), strict=True)]
        samples: dict[int, Any] = pickle.loads(pickled, buffers=arrays)
        return {place: _with_tensors(sample) for place, sample in samples.items()}

    def _gone(self, helper: _Helper) -> None:
        self._helpers.remove(helper)
        helper.pipe.close()
        _log.warning(
            f"a process that helps to read images is gone (out of memory, or killed); "
            f"{len(self._helpers)} are left, and the run goes on"
        )

    def close(self) -> None:
        """End the helpers."""
        for helper in self._helpers:
            helper.process.kill()  # it has nothing to lose, and a forked one would not see the end
            helper.process.join()
            helper.pipe.close()
        self._helpers.clear()


@dataclass(eq=False)
class _Helper:
    """A process, and ``owes``: whether it has been asked and has not answered yet."""

    process: BaseProcess
    pipe: Connection
    block: SharedBytes
    owes: bool = False


def _places(shared: SharedBytes, call: int, count: int, share: int, shares: int) -> Iterator[int]:
    """Places of a batch's samples that one process is to read, each as its turn comes.

    They are those of its own share from the first to the last, then what the other processes have
    not come to: of the next share the last first, and so on. They end when another call begins.

    Args:
        shared: int64 (``MAX_PLACES`` + 1,): at each place, the number of the last call whose sample
            there some process has begun to read; last, the number of the newest call. Where a batch
            has more samples than places, a sample may be passed over by all; the process that asks
            reads it at the end.
        call: number of this call.
        count: samples of the batch.
        share: which share is the process's own.
        shares: how many there are, as equal as can be.
    """
    table: NDArray[np.int64] = shared.array.view(np.int64)
    bounds = [count * number // shares for number in range(shares + 1)]
    own = range(bounds[share], bounds[share + 1])
    others = [(share + step) % shares for step in range(1, shares)]
    left = [reversed(range(bounds[other], bounds[other + 1])) for other in others]
    for place in itertools.chain(own, *left):
        if table[MAX_PLACES] != call:
            return
        if table[place % MAX_PLACES] != call:
            table[place % MAX_PLACES] = call
            yield place


def _help(
    pipe: Connection,
    block: SharedBytes,
    table: SharedBytes,
    dataset: Any,
    number: int,
    start: Callable[[int], None] | None,
) -> None:
    """Answer each list of rows with samples of them, their arrays apart in ``block``."""
    torch.set_num_threads(1)
    if start is not None:
        start(number)
    asks = multiprocessing.parent_process()
    ends = asks.sentinel if asks is not None else pipe  # a forked helper holds both ends of a pipe
    while pipe in wait([pipe, ends]):
        try:
            call, rows, share, shares = pipe.recv()
            places = _places(table, call, len(rows), share, shares)
            pipe.send(_read(dataset, rows, places, block))
        except (EOFError, OSError):  # the process that asks has closed its end
            return


def _read(
    dataset: Any, rows: Sequence[int], places: Iterator[int], block: SharedBytes
) -> tuple[bytes, list[int]]:
    """The samples by place, pickled, and the bytes of each array; none if they cannot be sent."""
    begun: list[int] = []
    samples: dict[int, Any] = {}
    buffers: list[pickle.PickleBuffer] = []
    try:
        for place in places:
            begun.append(rows[place])
            samples[place] = _with_arrays(dataset[rows[place]])
        pickled = pickle.dumps(samples, protocol=5, buffer_callback=buffers.append)
        end = 0
        for buffer in buffers:
            with buffer.raw() as content:
                block.array.data[end : end + content.nbytes] = content
                end += content.nbytes
    except Exception as error:  # whoever asked tries itself, and raises what is to be raised
        _log.warning(f"rows {begun} are read again by the process that trains: {error!r}")
        return pickle.dumps({}), []
    return pickled, [buffer.raw().nbytes for buffer in buffers]


def _with_arrays(sample: dict[str, Any]) -> dict[str, Any]:
    """Arrays for tensors, each of which would be sent by a file of its own."""
    data = {name: value.numpy() for name, value in sample["data"].items()}
    return {**sample, "data": data}


def _with_tensors(sample: dict[str, Any]) -> dict[str, Any]:
    data = {name: torch.from_numpy(value) for name, value in sample["data"].items()}
    return {**sample, "data": data}
