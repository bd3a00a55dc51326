"""A lazy import hook, which runs our code only when a VISSL module is imported."""

import sys

from pirl_plugin.vissl.import_hook.table import AFTER, BEFORE, NAMED, PARTS, REPLACED

TYPE_CHECKING = False  # importing typing would double the import time of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MODULES = {*BEFORE, *PARTS, *AFTER, *REPLACED}


class ImportHook:
    """Meta-path finder that adds our steps to the other finders' results."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return another finder's spec for a listed module, with a loader that runs our steps."""
        if name not in _MODULES:
            return None
        from functools import partial

        for finder in sys.meta_path:  # an editable install of VISSL has its own finder
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            if spec := finder.find_spec(name, path, target):
                if spec.loader is not None:
                    body = spec.loader.exec_module
                    spec.loader.exec_module = partial(_execute, body)  # type: ignore[method-assign]
                return spec
        return None


def install() -> ImportHook:
    """Install the import hook in this process, once, and return it."""
    for finder in sys.meta_path:
        if isinstance(finder, ImportHook):
            return finder
    hook = ImportHook()
    sys.meta_path.insert(0, hook)
    return hook


def _execute(body: "Callable[[ModuleType], None]", module: "ModuleType") -> None:
    """Execute a module's body; register our parts, run steps, and replace functions."""
    from functools import partial, partialmethod
    from pkgutil import resolve_name

    module_name = module.__name__
    for step in BEFORE.get(module_name, ()):
        resolve_name(step)(module)
    body(module)
    if module_name in PARTS:
        registry, parts = PARTS[module_name]
        for name, path in parts.items():
            resolve_name(registry)[name] = resolve_name(path)
        if module_name in NAMED:
            resolve_name(NAMED[module_name])(parts)
    for step in AFTER.get(module_name, ()):
        resolve_name(step)(module)
    for name, replacement in REPLACED.get(module_name, {}).items():
        class_name, _, function = name.rpartition(".")
        owner = getattr(module, class_name) if class_name else module
        bind = partialmethod if class_name else partial
        original = getattr(owner, function)
        setattr(owner, function, bind(resolve_name(replacement), original=original))
