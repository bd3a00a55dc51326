"""Which keys of a config does a run never read? A script, for a process of its own:

    python tests/helpers/unread_keys.py '{"pretrain/pirl/npid_8node": ["OVERRIDE", …], …}'

It composes each config as the host does, lets the host's launcher train with a configuration that
notes each key that is read, and prints the keys that the config's files (and those of overlays
among the overrides) set and nothing read, as JSON.

What is passed on as keyword arguments counts as read: there, Python refuses an unknown name. A key
that only an interpolation refers to is read where the interpolation is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from pirl_plugin.vissl.import_hook import finder

finder.install()

from vissl.config import AttrDict  # noqa: E402
from vissl.hooks import default_hook_generator  # noqa: E402
from vissl.utils import distributed_launcher, hydra_config  # noqa: E402

from pirl_plugin.utils.config_root import config_root  # noqa: E402


class Noting(AttrDict):
    """The host's configuration, which notes the path of each key whose value is taken."""

    def __init__(self, mapping: dict, path: tuple, read: set) -> None:
        dict.__init__(self)
        object.__setattr__(self, "note", lambda key: read.add((*path, key)))
        object.__setattr__(self, "place", (path, read))
        for key, value in mapping.items():
            dict.__setitem__(self, key, noting(value, (*path, key), read))

    def __getitem__(self, key: Any) -> Any:
        self.note(key)
        return dict.__getitem__(self, key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self else default

    def pop(self, key: Any, *default: Any) -> Any:
        self.note(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self.note(key)
        return dict.setdefault(self, key, default)

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        return [self[key] for key in self]

    def __iter__(self) -> Any:  # overriding it is also what makes f(**config) call __getitem__
        return iter(list(dict.keys(self)))

    def __repr__(self) -> str:  # printing, saving and copying are not reading
        return repr(plain(self))

    def to_dict(self) -> dict:
        return plain(self)

    def __deepcopy__(self, memo: Any) -> Noting:
        return Noting(plain(self), *self.place)

    copy = __copy__ = lambda self: self.__deepcopy__(None)

    def __reduce__(self) -> Any:
        return AttrDict, (plain(self),)


class NotingList(list):
    """A list that holds mappings or lists, which notes each entry that is taken."""

    def __init__(self, entries: list, path: tuple, read: set) -> None:
        super().__init__(noting(entry, (*path, i), read) for i, entry in enumerate(entries))
        self.place = (path, read)

    def __getitem__(self, index: Any) -> Any:
        for i in range(len(self))[index] if isinstance(index, slice) else [range(len(self))[index]]:
            self.place[1].add((*self.place[0], i))
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return repr(plain(self))

    def __deepcopy__(self, memo: Any) -> NotingList:
        return NotingList(plain(self), *self.place)

    def __reduce__(self) -> Any:
        return list, (plain(self),)


def noting(value: Any, path: tuple, read: set) -> Any:
    """``value``, which notes in ``read`` what is taken from it; lists of scalars are one value."""
    if isinstance(value, dict):
        return Noting(value, path, read)
    if isinstance(value, list) and any(isinstance(entry, (dict, list)) for entry in value):
        return NotingList(value, path, read)
    return value


def plain(value: Any) -> Any:
    """A copy without notes, made without leaving any."""
    if isinstance(value, dict):
        return {key: plain(dict.__getitem__(value, key)) for key in dict.keys(value)}
    if isinstance(value, list):
        return [plain(entry) for entry in list.__iter__(value)]
    return value


def leaves(value: Any, path: tuple = ()) -> set[tuple]:
    """Paths of all values that are neither mapping nor list of such."""
    if isinstance(value, dict):
        return {leaf for key, entry in value.items() for leaf in leaves(entry, (*path, key))}
    if isinstance(value, list) and any(isinstance(entry, (dict, list)) for entry in value):
        return {leaf for i, entry in enumerate(value) for leaf in leaves(entry, (*path, i))}
    return {path}


def files(name: str) -> list[Path]:
    """The YAML of a config and those of its ``defaults``; the current folder's go first."""
    roots = [Path("configs/config"), config_root() / "config"]
    file = next(path for root in roots if (path := root / f"{name}.yaml").is_file())
    others = yaml.safe_load(file.read_text()).get("defaults", [])
    names = [entry.removeprefix("/config/") for entry in others if entry != "_self_"]
    return [file, *(below for name in names for below in files(name))]


def find(tree: Any, path: tuple) -> Any:
    """The value at a path, or an empty mapping where a later file has put another in its place."""
    for key in path:
        inside = key in tree if isinstance(tree, dict) else isinstance(key, int) and key < len(tree)
        if not inside or not isinstance(tree, (dict, list)):
            return {}
        tree = tree[key]
    return tree


def unread(name: str, overrides: list[str]) -> list[str]:
    """Train once, and name the keys of the config's files that were never read."""
    from omegaconf import OmegaConf

    sources = files(name)
    for override in overrides:
        group = re.fullmatch(r"\+config/(.*)=(\w+)", override)
        sources += files("/".join(group.groups())) if group else []
    composed = hydra_config.compose_hydra_configuration([f"config={name}", *overrides])
    whole = OmegaConf.to_container(composed)["config"]
    ours, read, referred = set(), set(), set()
    for file in sources:
        for path in leaves(yaml.safe_load(file.read_text()).get("config", {})):
            ours |= {(*path, *below) for below in leaves(find(whole, path))}
        for reference in re.findall(r"\$\{config\.([\w.\[\]]+)\}", file.read_text()):
            keys = re.findall(r"\w+", reference)
            referred.add(tuple(int(key) if key.isdigit() else key for key in keys))
    config = Noting(whole, (), read)
    hydra_config.infer_and_assert_hydra_config(config)
    hydra_config.convert_fsdp_dtypes(config)
    launch = distributed_launcher.launch_distributed.__wrapped__  # our own checks are no readers
    launch(cfg=config, node_id=0, engine_name="train", hook_generator=default_hook_generator)
    left = [path for path in ours - read if not any(path[: len(r)] == r for r in referred)]
    return sorted(".".join(map(str, path)) for path in left)


if __name__ == "__main__":
    found = {}
    for config, chosen in json.loads(sys.argv[1]).items():
        found[config] = unread(config.partition(" ")[0], chosen)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    print(json.dumps(found))
