"""``python -m pirl_plugin COMMAND …`` and the console script ``pirl-plugin COMMAND …``."""

from __future__ import annotations

import os
import sys

_GO_ON = frozenset({"quickstart", "sweep", "prepare", "detection"})


def main() -> None:
    """Install the import hook, which a ``.pth`` file may not have done, and run the command."""
    from pirl_plugin.cli import run
    from pirl_plugin.files import DiskFullError
    from pirl_plugin.utils.interrupts import Interrupted
    from pirl_plugin.vissl.import_hook import finder

    finder.install()
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except DiskFullError as error:
        print(f"pirl_plugin: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        _say_ended("SIGINT")
        status = 130  # as of a shell
    except Interrupted as signal:
        _say_ended(str(signal))
        status = signal.exit_status
    sys.exit(status)


def _say_ended(signal: str) -> None:
    resumes = len(sys.argv) > 1 and sys.argv[1] in _GO_ON
    remedy = "; the same command goes on where it was" if resumes else ""
    print(f"pirl_plugin: {signal}: the command has ended{remedy}", file=sys.stderr)


if __name__ == "__main__":
    main()
