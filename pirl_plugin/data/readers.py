"""Several processes that read a batch together, for a model that takes all cores meanwhile."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import pickle
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pirl_plugin.data.shared_bytes import SharedBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

MAX_BYTES = 2**30
"""Most that the views of a helper's share may take; memory is taken as it is needed."""

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
        for number in range(count):
            pipe, theirs = context.Pipe()
            block = SharedBytes(MAX_BYTES)
            sent = (theirs, block, dataset, number, start)
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
        share = -(-len(rows) // (len(self._helpers) + 1))
        own, *others = (rows[first : first + share] for first in range(0, len(rows), share))
        asked = [
            helper if self._ask(helper, wanted) else None
            for helper, wanted in zip(tuple(self._helpers), others, strict=False)
        ]
        samples = [self._dataset[row] for row in own]
        for helper, wanted in zip(asked, others, strict=True):
            found = None if helper is None else self._answer(helper)
            # What a helper could not read is tried here, and raises here what is to be raised.
            samples += [self._dataset[row] for row in wanted] if found is None else found
        return samples

    def _ask(self, helper: _Helper, rows: Sequence[int]) -> bool:
        try:
            helper.pipe.send((self._calls, rows))
        except OSError:
            self._gone(helper)
            return False
        return True

    def _answer(self, helper: _Helper) -> list[Any] | None:
        call = -1
        while call != self._calls:  # an earlier call that was interrupted has left its answer
            try:
                call, pickled, sizes = helper.pipe.recv()
            except (EOFError, OSError):
                self._gone(helper)
                return None
        block = helper.block.array.data
        arrays = [block[e - s : e] for s, e in zip(sizes, itertools.accumulate(sizes), strict=True)]
        samples: list[Any] | None = pickle.loads(pickled, buffers=arrays)
        return None if samples is None else [_with_tensors(sample) for sample in samples]

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


class _Helper(NamedTuple):
    process: BaseProcess
    pipe: Connection
    block: SharedBytes


def _help(
    pipe: Connection,
    block: SharedBytes,
    dataset: Any,
    number: int,
    start: Callable[[int], None] | None,
) -> None:
    """Answer each list of rows with the samples, their arrays apart in ``block``."""
    torch.set_num_threads(1)
    if start is not None:
        start(number)
    asks = multiprocessing.parent_process()
    ends = asks.sentinel if asks is not None else pipe  # a forked helper holds both ends of a pipe
    while pipe in wait([pipe, ends]):
        try:
            call, rows = pipe.recv()
            pipe.send((call, *_share(dataset, rows, block)))
        except (EOFError, OSError):  # the process that asks has closed its end
            return


def _share(dataset: Any, rows: Sequence[int], block: SharedBytes) -> tuple[bytes, list[int]]:
    """The samples, pickled, and the bytes of each array; None for samples that cannot be sent."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        samples = [_with_arrays(dataset[row]) for row in rows]
        pickled = pickle.dumps(samples, protocol=5, buffer_callback=buffers.append)
        end = 0
        for buffer in buffers:
            with buffer.raw() as content:
                block.array.data[end : end + content.nbytes] = content
                end += content.nbytes
    except Exception as error:  # whoever asked tries itself, and raises what is to be raised
        _log.warning(f"rows {list(rows)} are read again by the process that trains: {error!r}")
        return pickle.dumps(None), []
    return pickled, [buffer.raw().nbytes for buffer in buffers]


def _with_arrays(sample: dict[str, Any]) -> dict[str, Any]:
    """Arrays for tensors, each of which would be sent by a file of its own."""
    data = {name: value.numpy() for name, value in sample["data"].items()}
    return {**sample, "data": data}


def _with_tensors(sample: dict[str, Any]) -> dict[str, Any]:
    data = {name: torch.from_numpy(value) for name, value in sample["data"].items()}
    return {**sample, "data": data}
