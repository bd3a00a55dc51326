"""One rank of ours: what is set up before the host's work, and how its failure is reported."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from pirl_plugin.utils.interrupts import ignored
from pirl_plugin.vissl.hooks.rows import compare_rows_on_resume
from pirl_plugin.vissl.hooks.run_settings import RunSettings
from pirl_plugin.vissl.launch.environment import mask_logged_environment
from pirl_plugin.vissl.launch.failures import RankError, describe, traceback_wanted
from pirl_plugin.vissl.launch.rendezvous import initialise_with_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vissl.config import AttrDict

    Result = TypeVar("Result")

_WATCH_S = 0.5  # between two looks at whether the launcher is there


def run_rank(work: Callable[[], Result], config: AttrDict, rank: int) -> Result:
    """Do the host's work of one rank.

    Args:
        work: the host's ``_distributed_worker`` with its arguments.
        config: the host's configuration.
        rank: of the run, from 0.

    Raises:
        RankError: the work failed; says in one sentence why.
    """
    settings = RunSettings.from_config(config)
    try:
        with prepared(settings.timeout_minutes):
            result = work()
        if multiprocessing.parent_process() is not None:
            _end_process_group()
        return result
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            raise  # an exit status, not a complaint
        raise RankError(describe(error, rank, settings.timeout_minutes)) from None


@contextmanager
def prepared(timeout_minutes: float) -> Iterator[None]:
    """Set up this process: its end, logging, time-outs, the comparison of rows.

    What is replaced in modules of others is put back: a run of one process is in the launcher's,
    which may be a notebook's.

    Args:
        timeout_minutes: how long this rank waits for another.
    """
    from torch import distributed
    from vissl.trainer.train_task import SelfSupervisionTask

    if multiprocessing.parent_process() is not None:  # a rank of several, not the launcher itself
        _end_with_parent()
    engines = [m for name, m in list(sys.modules.items()) if name.startswith("vissl.engines.")]
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(_set_again(engine, "print_system_env_info"))
            mask_logged_environment(engine)
        stack.callback(_set_again(distributed, "init_process_group"))
        initialise_with_timeout(timeout_minutes)
        stack.callback(_set_again(SelfSupervisionTask, "_build_loss"))
        compare_rows_on_resume(SelfSupervisionTask)
        stack.callback(logging.setLogRecordFactory, logging.getLogRecordFactory())
        stack.callback(setattr, logging, "raiseExceptions", logging.raiseExceptions)
        if not traceback_wanted():
            _log_without_tracebacks()
            # Nor is there one for each line that a full disk has no room for.
            logging.raiseExceptions = False
        stack.callback(_start_workers_without_interrupts())
        yield


def _end_process_group() -> None:
    """End its threads: gloo's can abort a finished process that they outlive, NCCL's warn."""
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


def _set_again(owner: object, name: str) -> Callable[[], None]:
    """A function that gives ``owner`` back the attribute that it has now, if it has one."""
    if not hasattr(owner, name):
        return lambda: None
    value = getattr(owner, name)
    return lambda: setattr(owner, name, value)


def _end_with_parent() -> None:
    """End this process once the launcher is gone, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        for handler in logging.root.handlers:
            handler.flush()
        os._exit(1)

    threading.Thread(target=watch, name="launcher watch", daemon=True).start()


def _start_workers_without_interrupts() -> Callable[[], None]:
    """Have loader workers ignore SIGINT, which a terminal sends to all: their rank ends them.

    Returns:
        A function that undoes it.
    """
    server = multiprocessing.forkserver._forkserver
    original = type(server).ensure_running

    def ensure_running() -> None:
        with ignored(signal.SIGINT):
            original(server)

    server.ensure_running = ensure_running  # type: ignore[method-assign]
    return lambda: delattr(server, "ensure_running")


def _log_without_tracebacks() -> None:
    """Log an exception's message without its traceback, which goes to ``failure.txt``."""
    factory = logging.LogRecord

    def record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made = factory(*args, **kwargs)
        made.exc_info = None
        return made

    logging.setLogRecordFactory(record)
