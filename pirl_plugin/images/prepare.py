"""``pirl-plugin prepare``: a smaller copy of a folder of images, read several times as fast.

The copy has the same folders and names, or is a few large tars (``--shards``). Interrupted, it goes
on with the same command.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.arguments import HelpFormatter, output_folder, user_path, whole_number
from pirl_plugin.files import atomic_write, remove_unfinished
from pirl_plugin.images.names import SETTINGS_FILE
from pirl_plugin.processes import usable_cores

if TYPE_CHECKING:
    from pirl_plugin.images.prepare_work import Result, Settings

_PROBLEMS = "unreadable.txt"
_BLOCK = 32
_PER_SHARD = 5000
_SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: after ``prepare``.

    Returns:
        0; 1 where no image could be copied, or a copy's place was taken.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    options = _parser().parse_args(arguments)
    from concurrent.futures import BrokenExecutor

    from pirl_plugin.images.prepare_work import Settings
    from pirl_plugin.images.sources.folder import FolderSource
    from pirl_plugin.images.sources.shard_index import INDEX, write_index

    source, out = options.input.resolve(), options.output
    if out == source or source in out.parents:
        raise SystemExit(f"pirl_plugin: OUT = {out} lies in IN: expected another folder")
    try:
        images = FolderSource(source)
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    settings = Settings(source, out, options.size, options.quality)
    shards = options.shards
    _claim(settings, {"shards": shards, "images": len(images)} if shards else {})
    if shards:
        (out / INDEX).unlink(missing_ok=True)  # of the tars as they were
    work = _shards(settings, images, shards) if shards else _blocks(settings, images)
    try:
        if not shards:
            _make_class_folders(settings, images)
        total = _run(work, len(images), options.workers)
        if shards:
            write_index(settings.out)
    except KeyboardInterrupt:
        print("\npirl_plugin: interrupted; the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        raise SystemExit(
            f"pirl_plugin: {error}: a copy could not be written; make room, and repeat the command"
        ) from None
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    except BrokenExecutor:
        raise SystemExit(
            "pirl_plugin: a worker process died, possibly for lack of memory; repeat the "
            "command with fewer --workers"
        ) from None
    return _report(settings, total)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin prepare",
        description="Make a smaller copy of a folder of images, with the same folders and names.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("input", metavar="IN", type=user_path, help="folder of images")
    parser.add_argument(
        "output", metavar="OUT", type=output_folder, help="new folder, or one to complete"
    )
    parser.add_argument(
        "--size", type=whole_number(1), default=256, help="shorter side of a copy, pixels"
    )
    parser.add_argument(
        "--quality", type=whole_number(1, 95), default=90, help="of the JPEGs, 1 to 95"
    )
    parser.add_argument("--workers", type=whole_number(1), default=usable_cores(), help="processes")
    parser.add_argument(
        "--shards", type=whole_number(1), nargs="?", const=_PER_SHARD, metavar="N",
        help=f"write tars of N images (WebDataset's layout; {_PER_SHARD} if N is left out)",
    )  # fmt: skip
    return parser


def _claim(settings: Settings, layout: dict[str, int]) -> None:
    """Take a new or empty folder, or one that was begun with the same settings.

    Args:
        settings: of the copies.
        layout: what must be the same, too, for an earlier part to fit.

    Raises:
        SystemExit: it holds something else.
    """
    file = settings.out / SETTINGS_FILE
    remove_unfinished(settings.out, subfolders=True)
    wanted = {
        "source": str(settings.source),
        "size": settings.size,
        "quality": settings.quality,
        **layout,
    }
    try:
        found = json.loads(file.read_text()) if file.exists() else None
    except ValueError:
        found = {}
    if found is None and settings.out.exists() and any(settings.out.iterdir()):
        raise SystemExit(
            f"pirl_plugin: OUT = {settings.out} holds files that are not of this command: expected "
            f"a new or empty folder; name another"
        )
    if found is not None and found != wanted:
        raise SystemExit(
            f"pirl_plugin: OUT = {settings.out} was begun with {found}: expected {wanted}; name "
            f"another folder, or repeat the command that began it"
        )
    if found is None:
        with atomic_write(file) as new:
            new.write(json.dumps(wanted).encode())


def _make_class_folders(settings: Settings, images: Any) -> None:
    """Make the folder of each class, also of one without a copy, so that classes keep numbers."""
    from pirl_plugin.images.sources.paths import class_folders

    if images.labels().min() >= 0:  # no image lies beside the folders
        for name in class_folders(os.fspath(settings.source)):
            (settings.out / name).mkdir(exist_ok=True)


def _blocks(settings: Settings, images: Any) -> Iterator[tuple[Any, ...]]:
    from pirl_plugin.images.prepare_work import copy_block

    names = [os.path.relpath(path, settings.source) for path in images.paths()]
    for start in range(0, len(names), _BLOCK):
        yield copy_block, settings, names[start : start + _BLOCK]


def _shards(settings: Settings, images: Any, count: int) -> Iterator[tuple[Any, ...]]:
    from pirl_plugin.images.prepare_work import write_shard

    names = [os.path.relpath(path, settings.source) for path in images.paths()]
    members = list(zip(names, images.labels().tolist(), strict=True))
    for number, start in enumerate(range(0, len(members), count)):
        yield write_shard, settings, f"shard-{number:06d}.tar", members[start : start + count]


def _run(work: Iterator[tuple[Any, ...]], count: int, workers: int) -> Result:
    """Do all work on ``workers`` processes, with a bar.

    Raises:
        OSError: a copy could not be written.
        ValueError: a tar of an earlier run is not whole.
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from tqdm import tqdm

    from pirl_plugin.images.prepare_work import Result

    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    if sys.platform == "linux":
        context.set_forkserver_preload(["pirl_plugin.images.prepare_work"])
    total = Result()
    with ProcessPoolExecutor(workers, context, initializer=_start_worker) as pool:
        pending = [pool.submit(*each) for each in work]
        try:
            with tqdm(total=count, unit=" images", mininterval=1) as bar:
                for done in as_completed(pending):
                    result = done.result()
                    total.written += result.written
                    total.present += result.present
                    total.in_the_way += result.in_the_way
                    total.problems += result.problems
                    bar.update(result.written + result.present + len(result.problems))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return total


def _start_worker() -> None:
    import signal

    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command itself ends the pool
    torch.set_num_threads(1)


def _report(settings: Settings, total: Result) -> int:
    print(
        f"{total.written} images written, {total.present} found from before, "
        f"{len(total.problems)} without a copy: {settings.out}"
    )
    if total.problems:
        file = settings.out / _PROBLEMS
        listed = [problem.encode("utf-8", "backslashreplace") for problem in sorted(total.problems)]
        file.write_bytes(b"".join(line + b"\n" for line in listed))
        for line in listed[:_SHOWN]:
            print(f"  {line.decode()}")
        print(f"all are listed in {file}")
    return int(total.in_the_way > 0 or total.written + total.present == 0)
