"""``pirl-plugin configs``: list the configs and overlays of this plugin."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from pirl_plugin.settings import config_root

_GROUPS = {
    "pretrain/pirl": "Pre-training, config=NAME",
    "benchmark/pirl": "Benchmarks, config=NAME",
}
_OVERLAYS = "Overlays, +config/pirl/GROUP=NAME after config=…"


def main(arguments: list[str]) -> int:
    """Print group, name and description of each config and overlay."""
    argparse.ArgumentParser(
        prog="pirl-plugin configs",
        description="List the configs and overlays of this plugin. Example: pirl-plugin configs",
    ).parse_args(arguments)
    heading = ""
    for group, name, description in listed():
        if group != heading:
            print(group if not heading else f"\n{group}")
            heading = group
        print(f"  {name:<54} {description}")
    return 0


def listed() -> list[tuple[str, str, str]]:
    """Return group, name and description of each config and overlay, in printing order."""
    root = config_root() / "config"
    found = []
    for group, heading in _GROUPS.items():
        for path in sorted((root / group).glob("*.yaml")):
            found.append((heading, f"{group}/{path.stem}", describe(path)))
    for path in sorted((root / "pirl").rglob("*.yaml")):
        folder = path.parent.relative_to(root).as_posix()
        if folder != "pirl/base":
            found.append((_OVERLAYS, f"+config/{folder}={path.stem}", describe(path)))
    return found


def describe(path: Path) -> str:
    """Return the first sentence of the comment at the top of a YAML file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#") or line == "#":
            break
        lines.append(line.lstrip("# "))
    text = " ".join(lines)
    end = re.search(
        r"(?<!\bSec)(?<!\bApp)(?<!\bEq)(?<!\bet al)(?<!vs)[.:](?=\s+[A-Z0-9]|\s*$)", text
    )
    return text[: end.start()] if end else text
