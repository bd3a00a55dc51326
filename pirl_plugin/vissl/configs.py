"""``pirl-plugin configs``: list this plugin's configs and overlays, or print a composed one."""

from __future__ import annotations

from pathlib import Path

from pirl_plugin.system.arguments import command_parser
from pirl_plugin.vissl.host_config import config_root, require_host

_GROUPS = {
    "pretrain/pirl": "Pre-training, config=NAME",
    "benchmark/pirl": "Benchmarks, config=NAME",
}
_OVERLAYS = "Overlays, +config/pirl/GROUP=NAME after config=…"


def main(arguments: list[str]) -> int:
    """List all configs and overlays; with a name, print the composed configuration."""
    parser = command_parser(
        "configs",
        "List this plugin's configs and overlays; with NAME, print the complete configuration that "
        "VISSL would use.",
        "pretrain/pirl/own_images",
    )
    parser.usage = "%(prog)s [NAME] [KEY=VALUE …]"
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as pretrain/pirl/own_images")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as in pirl-plugin train")
    options = parser.parse_args(arguments)
    if options.name is None:
        _print_list()
    else:
        require_host()
        name = options.name if "=" in options.name else f"config={options.name}"
        print(composed_text([name, *options.overrides]), end="")
    return 0


def composed_text(overrides: list[str]) -> str:
    """Return a composed configuration as YAML, with all interpolations resolved.

    Args:
        overrides: as in ``pirl-plugin train``; the first is ``config=NAME``.
    """
    from omegaconf import OmegaConf

    from pirl_plugin.vissl.run.compose import compose

    config = compose(overrides).config
    OmegaConf.resolve(config)
    return OmegaConf.to_yaml(config)


def listed() -> dict[str, dict[str, str]]:
    """Return heading → config or overlay → description, in printing order."""
    root = config_root() / "config"
    headings = {}
    for group, heading in _GROUPS.items():
        paths = sorted((root / group).glob("*.yaml"))
        headings[heading] = {f"{group}/{path.stem}": _description(path) for path in paths}
    overlays = {}
    for path in sorted((root / "pirl").rglob("*.yaml")):
        folder = path.parent.relative_to(root).as_posix()
        if folder != "pirl/base":
            overlays[f"+config/{folder}={path.stem}"] = _description(path)
    return {**headings, _OVERLAYS: overlays}


def _description(path: Path) -> str:
    """Return the second line of a YAML file, a comment that describes it."""
    _, description, *_ = path.read_text("utf-8").splitlines()
    return description.removeprefix("# ")


def _print_list() -> None:
    for heading, descriptions in listed().items():
        print(heading)
        for name, description in descriptions.items():
            print(f"  {name:<54} {description}")
        print()
