"""Write docs/reference/configuration.md from the code: ``python docs/make_configuration.py``."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "configuration.md"
sys.path.insert(0, str(ROOT))

from pirl_plugin.models.head import PIRLHead  # noqa: E402
from pirl_plugin.views.jigsaw import JigsawViews  # noqa: E402
from pirl_plugin.views.photometric import Photometric  # noqa: E402
from pirl_plugin.vissl.run.validation import SECTIONS  # noqa: E402

HEADER = """# Configuration reference

`python docs/make_configuration.py` generates this page from the code. On the command line, all keys
start with `config.`. VISSL's own keys are listed in VISSL's `defaults.yaml`. The values used in the
paper's configs are in `configs/config/pirl/base`.
"""
FOOTER = """## Other keys

| key | default | meaning |
|---|---|---|
| `TRAINER.PIRL_MICRO_BATCHES` | 1 | parts per process batch, computed one after the other |
| `MODEL.TRUNK.PIRL_RESNET.DEPTH` | 18 | 10, 18, 34, 50, 101 or 152 |
| `MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER` | 1 | width factor for all stages |
| `MODEL.TRUNK.PIRL_RESNET.SMALL_STEM` | false | 3 × 3 first convolution without pooling |
| `MODEL.TRUNK.PIRL_RESNET.IN_CHANNELS` | from the images | number of image channels |
| `MODEL.TRUNK.PIRL_TIMM.NAME` | resnet50 | a name in `timm.list_models()` |
| `MODEL.TRUNK.PIRL_TIMM.OPTIONS` | {} | keyword arguments for `timm.create_model` |
| `MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER` | required | trunk for each member |
| `MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES` | required | one checkpoint per member |
| `MODEL.HEAD.IN_DIM` | 2048 | trunk feature width; set by the network overlays |
| `MODEL.HEAD.HIDDEN_DIM` | null | hidden layer width in f and g; set by the `_mlp` networks |
| `MODEL.HEAD.NUM_CLASSES` | 1000 | number of classes for a linear benchmark or for fine-tuning |
| `DATA.MEAN`, `DATA.STD` | ImageNet's | per channel; computed for images other than RGB |
| `DATA.RGB` | false | convert to RGB in uint8; `+config.DATA.RGB=true` adds the key |

## Environment variables

| variable | default | meaning |
|---|---|---|
| `PIRL_PLUGIN_AUTOLOAD` | 1 | 0 disables the import hook |
| `NUMBA_CACHE_DIR` | numba's | folder for compiled kernels |
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEADER]
    parts += [f"## `{key}`\n\n{_table(kind)}" for key, kind in SECTIONS.items()]
    parts.append(f"## Views: `DATA.TRAIN.VIEWS`\n\n{_table(JigsawViews)}")
    parts.append(f"## Colors: `DATA.TRAIN.PHOTOMETRIC`\n\n{_table(Photometric)}")
    parts.append(f"## Heads: `[pirl_head, {{…}}]`\n\n{_table(PIRLHead)}")
    return "\n".join([*parts, FOOTER])


def _table(made: Any, prefix: str = "") -> str:
    """Return a row for each field of a dataclass or parameter of a class, nested ones too."""
    lines = [] if prefix else ["| key | default | meaning |", "|---|---|---|"]
    meanings = _described(made)
    for name, default in _defaults(made).items():
        if is_dataclass(default):
            lines.append(_table(type(default), f"{prefix}{name}.").rstrip("\n"))
            continue
        meaning = meanings.get(name, "").replace("``", "`").replace("|", "\\|").rstrip(".")
        lines.append(f"| `{prefix}{name}` | {_yaml(default)} | {meaning.replace('None', 'null')} |")
    return "\n".join(lines) + "\n"


def _defaults(made: Any) -> dict[str, Any]:
    if not is_dataclass(made):
        parameters = inspect.signature(made).parameters.values()
        return {p.name: p.default for p in parameters if p.kind != p.VAR_KEYWORD}
    return {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(made)
    }


def _described(made: Any) -> dict[str, str]:
    """Return name -> comment in the source, or text in the docstring's Args or Attributes."""
    found = dict(re.findall(r"^ {4}(\w+): .*= .*  # (.*)$", inspect.getsource(made), re.M))
    for entry in re.findall(r"^ {4}(\w+: .*(?:\n {5,}.*)*)", inspect.getdoc(made) or "", re.M):
        name, _, text = entry.partition(": ")
        found[name] = " ".join(text.split())
    return found


def _yaml(value: Any) -> str:
    if value in (inspect.Parameter.empty, MISSING):
        return "required"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(list(value)) if isinstance(value, (tuple, list)) else str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
