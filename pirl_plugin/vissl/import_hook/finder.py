"""A lazy import hook: it runs our code only when a module of the host is imported."""

import sys

from pirl_plugin.vissl.import_hook.table import AFTER, BEFORE

TYPE_CHECKING = False  # importing typing would double the import time of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class ImportHook:
    """Meta-path finder that adds our steps to the result of the other finders."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return the other finders' spec of a module in the table; its loader runs our steps."""
        if name not in BEFORE and name not in AFTER:
            return None
        for finder in sys.meta_path:  # an editable install of the host has its own finder
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            if spec := finder.find_spec(name, path, target):
                if spec.loader is not None:
                    _take_steps_in(spec.loader, name)
                return spec
        return None


def install() -> ImportHook:
    """Install the import hook in this process, once, and return it.

    For modules of the host that are already loaded, as in a notebook, run the ``AFTER`` steps.
    """
    for finder in sys.meta_path:
        if isinstance(finder, ImportHook):
            return finder
    hook = ImportHook()
    sys.meta_path.insert(0, hook)
    for name, steps in AFTER.items():
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _take(steps, module)
    return hook


def _take_steps_in(loader: object, name: str) -> None:
    """Replace ``loader.exec_module``, so that our steps run around the body of module ``name``."""
    body: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: "ModuleType") -> None:
        _take(BEFORE.get(name, ()), module)
        body(module)
        _take(AFTER.get(name, ()), module)

    loader.exec_module = exec_module  # type: ignore[attr-defined]


def _take(steps: "Sequence[str]", module: "ModuleType") -> None:
    """Call each ``package.module:function`` of ``steps`` with ``module``, in order."""
    from pkgutil import resolve_name

    for step in steps:
        resolve_name(step)(module)
