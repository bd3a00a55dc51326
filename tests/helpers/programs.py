"""Run Python programs in new processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(
    *words: object,
    folder: Path | None = None,
    stdin: str | None = None,
    check: bool = True,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run ``python WORD …`` to its end.

    Args:
        *words: arguments of the interpreter, such as ``-c`` and a program.
        folder: working directory (default: the current one).
        stdin: text for standard input.
        check: whether the exit status must be 0.
        **environment: additional variables.
    """
    result = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        input=stdin,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result
