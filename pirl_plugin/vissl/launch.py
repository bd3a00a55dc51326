"""Start a run of ``pirl-plugin train``, the host's own script, torchrun or SLURM.

The host's launcher starts the processes. This module wraps it: it checks the configuration, locks
the run's folder, forwards signals and reports a failure in one sentence.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import functools
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

from pirl_plugin.failures import (
    FAILURE_FILE,
    in_one_sentence,
    rank_sentence,
    record,
)
from pirl_plugin.settings import is_ours, require_host
from pirl_plugin.vissl import network
from pirl_plugin.vissl.import_hook import finder
from pirl_plugin.vissl.resume import signals

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict

finder.install()  # also in spawned ranks, before the import of the host
_USAGE = """\
usage: pirl-plugin train config=NAME [+config/pirl/GROUP=NAME …] [config.KEY=VALUE …]

Run VISSL's tools/run_distributed_engines.py with the same arguments.

  pirl-plugin train config=pretrain/pirl/quick_jigsaw 'config.DATA.TRAIN.DATA_PATHS=[photos]'
  torchrun --nproc_per_node=8 -m pirl_plugin train config=pretrain/pirl/jigsaw_8node …
  pirl-plugin configs    lists configs and overlays"""
_LONGEST_TMPDIR = 70  # characters; the paths of loader workers' sockets may have at most 107
RANK_PROCESS = "PIRL_PLUGIN_RANK_PROCESS"  # variable with the rank's process ID, for preload.py
_GRACE_S = 5.0  # time for the other ranks to end by themselves, and again after SIGTERM


def main(overrides: list[str]) -> int:
    """Compose a configuration and run it, here or through SLURM; return the exit status.

    Raises:
        ModuleNotFoundError: VISSL is not installed.
    """
    if not overrides or {"-h", "--help"} & set(overrides):
        print(_USAGE)
        return 0 if overrides else 2
    require_host()
    gc.disable()  # the imports of torch and VISSL take a quarter less time
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        # OpenMP's threads spin for microseconds before they sleep: docs/speed.md has the figures.
        os.environ["GOMP_SPINCOUNT"] = "300"
    from pirl_plugin.vissl import composing

    composed = composing.compose(overrides)
    given = composed.config
    one_process = given.DISTRIBUTED.NUM_PROC_PER_NODE == 1 or _torchrun_rank() is not None
    if one_process and not given.SLURM.USE_SLURM:
        _prepare_workers(given)  # their server imports the host at the same time as this process
    from vissl.utils import hydra_config

    args, config = hydra_config.convert_to_attrdict(composing.check(composed, overrides))
    from vissl.hooks import default_hook_generator
    from vissl.utils import distributed_launcher

    gc.freeze()  # what is imported is not looked at again, until the exit
    atexit.register(gc.unfreeze)
    gc.enable()
    if config.SLURM.USE_SLURM:
        distributed_launcher.launch_distributed_on_slurm(config, args.engine_name)
    else:
        distributed_launcher.launch_distributed(
            config, args.node_id, args.engine_name, default_hook_generator
        )
    return 0


def follow_torchrun(composed: DictConfig) -> None:
    """If torchrun started this process, take nodes, processes and rendezvous from torchrun."""
    value = os.environ
    if _torchrun_rank() is None:
        return
    composed.node_id = int(value["GROUP_RANK"])
    composed.config.DISTRIBUTED.update(
        NUM_NODES=int(value["GROUP_WORLD_SIZE"]),
        NUM_PROC_PER_NODE=int(value["LOCAL_WORLD_SIZE"]),
        INIT_METHOD="tcp",  # the host allows env only on one node; torch finds torchrun's store
        RUN_ID=f"{value['MASTER_ADDR']}:{value['MASTER_PORT']}",
    )


def guard_launcher(module: Any) -> None:
    """Wrap the host's launcher and its function of a rank, for runs of this plugin."""
    launch, run_rank = module.launch_distributed, module._distributed_worker

    @functools.wraps(launch)
    def launch_distributed(
        cfg: AttrDict, node_id: int, engine_name: str, hook_generator: Callable[[Any], Any]
    ) -> object:
        run = functools.partial(launch, cfg, node_id, engine_name, hook_generator)
        try:
            return _run(run, cfg, node_id, engine_name) if is_ours(cfg) else run()
        except signals.Interrupted as interrupted:
            name = signal.Signals(interrupted.code - 128).name
            print(f"pirl_plugin: {name}: the same command resumes the run", file=sys.stderr)
            raise

    @functools.wraps(run_rank)
    def _distributed_worker(
        local_rank: int, cfg: AttrDict, node_id: int, *args: Any, **kwargs: Any
    ) -> None:
        run = functools.partial(run_rank, local_rank, cfg, node_id, *args, **kwargs)
        _run_rank(run, cfg, local_rank, node_id) if is_ours(cfg) else run()

    module.launch_distributed = launch_distributed
    module._distributed_worker = _distributed_worker


def _run(launch: Callable[[], object], config: AttrDict, node_id: int, engine_name: str) -> object:
    """Run the host's launcher; raise ``SystemExit`` unless it succeeds."""
    from torch import multiprocessing as torch_processes
    from vissl.utils.checkpoint import get_checkpoint_folder

    from pirl_plugin.checkpoints.training_run import write_run_config
    from pirl_plugin.files import lock_folder
    from pirl_plugin.vissl.checks import check_run
    from pirl_plugin.vissl.patches.svm import remove_old_results
    from pirl_plugin.vissl.start_page import start_page

    rank = _torchrun_rank()  # before the host sets LOCAL_RANK
    first = node_id == 0 and not rank
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals.listening())
        stack.enter_context(in_one_sentence())
        if first:
            check_run(config, engine_name)
        folder = Path(get_checkpoint_folder(config))
        stack.enter_context(in_one_sentence(folder))
        if first:
            stack.enter_context(lock_folder(folder))
            (folder / FAILURE_FILE).unlink(missing_ok=True)
            if engine_name == "extract_features":
                remove_old_results(config)
                write_run_config(config, folder)
        start_page(config, first)
        network.choose_interface(config)
        spawn = functools.partial(_spawn, folder, node_id, rank)
        stack.enter_context(patch.object(torch_processes, "spawn", spawn))
        return launch()


def _torchrun_rank() -> int | None:
    """Return this process's rank on its node if torchrun started it, else None."""
    return int(os.environ["LOCAL_RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def _spawn(
    folder: Path,
    node_id: int,
    rank: int | None,
    function: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    **unused: object,
) -> None:
    """Replace ``torch.multiprocessing.spawn``; a single rank runs in this process."""
    if rank is not None or nprocs == 1:
        function(rank or 0, *args)
        return
    from torch.multiprocessing import start_processes
    from torch.multiprocessing.spawn import ProcessException

    try:
        ranks = start_processes(_start_rank, args, nprocs, join=False, start_method="spawn")
        while not ranks.join(grace_period=_GRACE_S):
            pass
    except ProcessException as error:
        _end(error, folder, nprocs * node_id + error.error_index)
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise


def _start_rank(local_rank: int, *args: Any) -> None:
    """Start a spawned process; unpickling this function imports this module before the host."""
    from vissl.utils import distributed_launcher

    distributed_launcher._distributed_worker(local_rank, *args)


def _end(error: Any, folder: Path, rank: int) -> NoReturn:
    """End the launcher with the cause of the ranks' end."""
    code, name = getattr(error, "exit_code", 1), getattr(error, "signal_name", None)
    for number in signals.STOPPING:
        if code == 128 + number or (code == -number and number == signals.requested()):
            raise signals.Interrupted(number) from None
    file = folder / FAILURE_FILE
    lines = file.read_text().splitlines() if file.is_file() else []
    said = [line for line in lines if line.startswith("pirl_plugin: ")]
    said.sort(key=lambda line: "another rank" in line)  # causes before consequences
    if name or not said:  # the system sends SIGKILL if it runs out of memory
        how = f"was ended by {name}" if name else f"ended with exit status {code}"
        raise SystemExit(f"pirl_plugin: rank {rank} {how}") from None
    raise SystemExit(f"{said[0]} (traceback in {file})") from None


def _run_rank(run: Callable[[], object], config: AttrDict, local_rank: int, node_id: int) -> None:
    """Do the host's work of one rank; if it fails, write ``failure.txt`` and exit."""
    from torch import distributed
    from vissl.engines import train
    from vissl.utils.checkpoint import get_checkpoint_folder

    from pirl_plugin.vissl.sections import RunSettings, read_section

    minutes = float(read_section(RunSettings, config, "HOOKS.PIRL_RUN").timeout_minutes)
    timeout = datetime.timedelta(minutes=minutes)
    spawned = multiprocessing.parent_process() is not None
    _prepare_workers(config)
    init = distributed.init_process_group

    def init_process_group(**options: Any) -> None:
        if _torchrun_rank() is not None:
            options |= {"init_method": None, "store": _torchrun_store(timeout)}
        init(**options, timeout=timeout)

    with contextlib.ExitStack() as stack:
        if spawned:
            stack.enter_context(signals.listening())
        stack.enter_context(patch.object(distributed, "init_process_group", init_process_group))
        # The host would log the whole environment, which may contain secrets.
        stack.enter_context(patch.object(train, "print_system_env_info", lambda variables: None))
        try:
            run()
            if distributed.is_initialized():
                distributed.destroy_process_group()  # otherwise gloo's threads can abort the exit
        except Exception as error:
            rank = config.DISTRIBUTED.NUM_PROC_PER_NODE * node_id + local_rank
            said = f"pirl_plugin: {rank_sentence(error, rank, minutes)}"
            path = record(error, said, Path(get_checkpoint_folder(config)))
            shown = f"{said} (traceback in {path})" if path else said
            raise SystemExit(1 if spawned and path else shown) from None


def _prepare_workers(config: DictConfig | AttrDict) -> None:
    """Start the server that forks loader workers, unless it is already running."""
    os.environ[RANK_PROCESS] = str(os.getpid())
    if len(tempfile.gettempdir()) > _LONGEST_TMPDIR:
        os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
    multiprocessing.set_forkserver_preload(["pirl_plugin.vissl.preload"])
    if config.DATA.NUM_DATALOADER_WORKERS:
        forkserver.ensure_running()


def _torchrun_store(timeout: datetime.timedelta) -> Any:
    """Return torchrun's store; on one node, only with keys of this attempt.

    torchrun keeps one store for all attempts (pytorch issue 135712). So a rank could read the
    address of a process of an earlier attempt. On several nodes, the attempt numbers may differ.
    """
    from torch import distributed

    store, _, _ = next(distributed.rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    if os.environ["GROUP_WORLD_SIZE"] == "1":
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        return distributed.PrefixStore(f"attempt_{attempt}", store)
    return store
