"""What a comparison leaves in its folder: ``claims.json``, tables and figures."""

from __future__ import annotations

import fcntl
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.cost import timed
from pirl_plugin.experiments.claims.invariance import first_line
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.claims.verdicts import verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pirl_plugin.experiments.claims.record import Record


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Let one process at a time work in a folder.

    Raises:
        SystemExit: another does.
    """
    with (out / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"pirl_plugin: --out = {out}: expected a folder that no other process works in; "
                f"wait for it, or give another"
            ) from None
        yield


def write_all(record: Record) -> list[str]:
    """``claims.json``, the tables and the figures, of what is there.

    Returns:
        A line for what failed once the runs were written.
    """
    record.write()
    try:
        claims = verdicts(Rows(timed(record.rows, record.cost), record.setting))
        record.write(claims)
        write_report(record.file.parent, record.setting, record.rows, claims, record.cost)
    except Exception as error:
        said = f"verdicts, tables or figures: {first_line(error)}"
        print(said, file=sys.stderr, flush=True)
        return [said]
    return []
