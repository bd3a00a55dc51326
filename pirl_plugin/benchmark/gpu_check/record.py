"""``gpu.json``: what a check has found so far, whole after each part."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pirl_plugin.utils.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pirl_plugin.benchmark.gpu_check.parts import Part

PASSED, FAILED, SKIPPED, CUT = "passed", "failed", "skipped", "cut"
# A record goes on where these are as they were; other versions only change figures' comments.
_SAME = ("gpu", "gpus", "torch", "triton", "driver")


@dataclass
class Record:
    """The check's state: where it runs, and how each part ended.

    Attributes:
        machine: hardware and versions.
        parts: name -> ``status`` (``passed``, ``failed``, ``skipped`` or ``cut``), ``seconds``,
            ``reason``, ``commit``, and ``results``: a benchmark's figures, or the tests' counts.
        left: names of the parts that are not finished, for lack of time.
    """

    machine: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, machine: dict[str, Any]) -> Record:
        """Read the record of earlier calls, or begin one.

        Raises:
            SystemExit: it is of another machine, or is no record.
        """
        if not file.is_file():
            return cls(machine)
        try:
            record = cls(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise SystemExit(
                f"pirl_plugin: {file}: expected the record of a check, found {error}; remove it, "
                f"or name another folder with --out"
            ) from None
        for key in _SAME:
            if record.machine.get(key) != machine.get(key):
                raise SystemExit(
                    f"pirl_plugin: {file}: {key} = {machine.get(key)}: expected "
                    f"{record.machine.get(key)}, on which its check began; name another folder "
                    f"with --out"
                )
        record.machine = machine
        return record

    def write(self, file: Path) -> None:
        """Write it in one step."""
        text = json.dumps(
            {"machine": self.machine, "parts": self.parts, "left": self.left}, indent=1
        )
        with atomic_write(file) as stream:
            stream.write(f"{text}\n".encode())

    def status(self, part: Part) -> str | None:
        """How a part ended; None where it has not been run."""
        return self.parts.get(part.name, {}).get("status")

    def due(self, parts: Iterable[Part]) -> list[Part]:
        """Parts to run now: those that have not ended first, those that failed last."""
        waiting = [part for part in parts if self.status(part) != PASSED]
        return sorted(waiting, key=lambda part: self.status(part) == FAILED)

    def failed(self) -> list[str]:
        """Names of the parts that failed."""
        return [name for name, part in self.parts.items() if part["status"] == FAILED]
