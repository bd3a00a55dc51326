"""Write docs/reference/configuration.md from the code: ``python docs/make_configuration.py``."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "configuration.md"
sys.path.insert(0, str(ROOT))

from pirl_plugin.checkpoints.run_folder import Keep  # noqa: E402
from pirl_plugin.losses.config import BankConfig, PIRLLossConfig  # noqa: E402
from pirl_plugin.losses.pirl_loss import PIRLLoss  # noqa: E402
from pirl_plugin.models.head import PIRLHead  # noqa: E402
from pirl_plugin.views.jigsaw import JigsawViews  # noqa: E402
from pirl_plugin.views.photometric import Photometric  # noqa: E402
from pirl_plugin.views.pretext import JigsawTask  # noqa: E402
from pirl_plugin.views.rotation import RotationViews  # noqa: E402
from pirl_plugin.vissl.checks.keys import TABLE  # noqa: E402
from pirl_plugin.vissl.hooks.input import PIRLInputHook  # noqa: E402
from pirl_plugin.vissl.hooks.monitor import MonitorSettings  # noqa: E402
from pirl_plugin.vissl.hooks.run_settings import RunSettings  # noqa: E402

# Key -> the paper's value, where the paper fixes one.
PAPER = {
    "LOSS.pirl_loss.lambda_invariance": "0.5 (Sec. 2.3; 0 is NPID)",
    "LOSS.pirl_loss.temperature": "0.07",
    "LOSS.pirl_loss.num_negatives": "32,000 (Sec. 3); 4,096 (Sec. 4)",
    "LOSS.pirl_loss.embedding_dim": "128",
    "LOSS.pirl_loss.estimator": "that of Wu et al. 2018",
    "LOSS.pirl_loss.bank.momentum": "0.5",
    "out_dim": "128",
    "num_patches": "9 for jigsaw",
    "hidden_dim": "none",
    "image_size": "224",
    "patches_crop_size": "255",
    "patch_size": "64",
    "grid": "3",
    "patches_scale": "at least 60 %",
    "num_permutations": "all 9! (PIRL); 2,000 (Jigsaw)",
    "MODEL.HEAD.IN_DIM": "2048",
    "MODEL.HEAD.HIDDEN_DIM": "none",
    "DATA.TRAIN.CROP_SIZE": "224",
    "DATA.TEST.CROP_SIZE": "224",
    "DATA.TEST.RESIZE": "256",
}
TYPES = {  # annotation -> type, as in YAML
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "bool | None": "true, false or null",
    "str": "name",
    "int | None": "whole number or null",
    "float | None": "number or null",
    "str | None": "name or null",
    "int | str": "whole number or name",
    "list[float] | None": "list of numbers or null",
    "Sequence[float]": "list of numbers",
    "tuple[float, float]": "two numbers",
}
BANK = {
    "momentum": "m of row ← normalise(m·row + (1 − m)·f(v_I))",
    "placement": "``replicated`` on each rank, or ``sharded``: each rank holds 1/W of the rows",
    "dtype": "of the rows: float32, bfloat16 or float16",
    "init": "``random``, or ``embeddings``: f(v_I) of the network before training, in a pass over "
    "the images",
    "seed": "of the random rows and of the draw; null: ``SEED_VALUE``",
    "overlap": "embeddings travel between ranks while the loss is computed",
}
TRUSTED = "whether a checkpoint may run code of its own where torch's safe loading refuses it"
TRUNKS = {
    "MODEL.TRUNK.PIRL_RESNET.DEPTH": ("18", "of ``pirl_resnet``"),
    "MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER": ("1", "of all stages"),
    "MODEL.TRUNK.PIRL_RESNET.SMALL_STEM": ("false", "3 × 3 stem without pooling"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER": ("required", "trunk of each member"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": ("required", "a checkpoint of each member"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.TRUST_PICKLE": ("false", TRUSTED),
    "MODEL.TRUNK.PIRL_TIMM.NAME": ("resnet50", "any that `timm.list_models()` has"),
    "MODEL.TRUNK.PIRL_TIMM.OPTIONS": ("{}", "keyword arguments of `timm.create_model`"),
}
HEAD_VALUES = {
    "MODEL.HEAD.IN_DIM": ("2048", "width of the trunk's features; overlays of networks set it"),
    "MODEL.HEAD.HIDDEN_DIM": ("null", "`hidden_dim` of f and g; the `_mlp` networks set it"),
    "MODEL.HEAD.F": ("see above", "the head f; NPID has it alone"),
    "MODEL.HEAD.G": ("see above", "the head g, of the transformed image"),
    "MODEL.HEAD.PATCH_DIM": ("1000", "features of each patch, of the jigsaw classifier"),
    "MODEL.HEAD.NUM_CLASSES": ("1000", "classes of a linear benchmark or a fine-tuning"),
}
VALUES = {
    "DATA.MEAN": ("[0.485, 0.456, 0.406]", "of the channels: views and benchmarks take it"),
    "DATA.STD": ("[0.229, 0.224, 0.225]", "standard deviation of the channels"),
    "DATA.TRAIN.CROP_SIZE": ("224", "side of a benchmark's training crop, pixels"),
    "DATA.TRAIN.CROP_SCALE": ("[0.08, 1.0]", "share of the image's area for it, from and to"),
    "DATA.TRAIN.RESIZE": ("[224, 224]", "size of the images of VOC07's SVMs, pixels"),
    "DATA.TEST.RESIZE": ("256", "shorter side of a test image, pixels"),
    "DATA.TEST.CROP_SIZE": ("that of TRAIN", "side of its central crop, pixels"),
    "MODEL.WEIGHTS_INIT.TRUST_PICKLE": ("false", TRUSTED),
}
OTHER_TYPES = {
    "DATA.TRAIN.RESIZE": "two whole numbers",
    "MODEL.HEAD.F": "list of [name, parameters]",
    "MODEL.HEAD.G": "list of [name, parameters]",
}
TRAINER = {
    "TRAINER.PIRL_MICRO_BATCHES": (
        "1",
        "parts that each process's batch goes through the model in, whose gradients add up; it "
        "multiplies the batch of the overlays of machines, and has to divide "
        "``DATA.TRAIN.BATCHSIZE_PER_REPLICA``",
    ),
    "TRAINER.TRAIN_STEP_NAME": (
        "follows",
        "``pirl_micro_batches`` where there are several, ``standard_train_step`` otherwise",
    ),
}
ENVIRONMENT = {
    "PIRL_PLUGIN_AUTOLOAD": ("1", "``0`` switches the import hook off"),
    "PIRL_PLUGIN_TRACEBACK": ("0", "``1`` shows tracebacks beside the sentence that ends a run"),
    "PIRL_PLUGIN_CONSOLE": (
        "page",
        "``page``: a start page and a line of progress; ``log``: VISSL's whole log",
    ),
    "PIRL_DATASETS": ("unset", "folder of all data sets, see [Data](../guides/data.md)"),
    "NUMBA_CACHE_DIR": ("numba's own", "folder for compiled kernels, where it is read-only"),
}


def page() -> str:
    """The page's text."""
    loss = {f.name: f.default for f in fields(PIRLLossConfig) if f.name != "bank"}
    bank = {f.name: f.default for f in fields(BankConfig)}
    views = _parameters(JigsawViews)
    head = _parameters(PIRLHead)
    parts = [
        "# Configuration reference",
        "Written by `python docs/make_configuration.py` from the code. All keys lie below `config.`"
        " on the command line; keys of VISSL itself are in its `defaults.yaml`.",
        "## The loss: `LOSS.pirl_loss`",
        _table("LOSS.pirl_loss", loss, _described(PIRLLoss), PIRLLossConfig),
        "## The memory bank: `LOSS.pirl_loss.bank`",
        _table("LOSS.pirl_loss.bank", bank, BANK, BankConfig),
        "## Input on the device: `HOOKS.PIRL_INPUT`",
        _table(
            "HOOKS.PIRL_INPUT",
            _parameters(PIRLInputHook),
            _described(PIRLInputHook),
            PIRLInputHook,
        ),
        "## What is measured while it trains: `HOOKS.PIRL_MONITOR`",
        "See [Watch a run](../guides/watching.md).",
        _settings_table("HOOKS.PIRL_MONITOR", MonitorSettings),
        "## Faults of a run: `HOOKS.PIRL_RUN`",
        _settings_table("HOOKS.PIRL_RUN", RunSettings),
        "## Checkpoints that are kept: `CHECKPOINT.PIRL`",
        _settings_table("CHECKPOINT.PIRL", Keep),
        "## The train step: `TRAINER`",
        _fixed(TRAINER),
        "## Heads: `pirl_head`",
        "An entry of `MODEL.HEAD.PARAMS`: `[pirl_head, {in_dim: 2048, …}]`.",
        _table("", head, _described(PIRLHead), PIRLHead),
        "Values that these entries, and those of other heads, refer to:",
        _fixed(HEAD_VALUES),
        "## Trunks",
        "`MODEL.TRUNK.NAME` is `pirl_resnet`, `pirl_ensemble`, `pirl_timm`, or one of VISSL's.",
        _fixed(TRUNKS),
        "## Views: `DATA.TRAIN.VIEWS`",
        "In this plugin's configs the entry of `DATA.TRAIN.TRANSFORMS` is also this mapping:"
        " `config.DATA.TRAIN.VIEWS.flip=image`. `PIRLJigsaw` and `PIRLRotationJigsaw` take all of"
        f" these; `PIRLRotation`, `PIRLImage` and `PredictRotation` take"
        f" {_names(RotationViews)}; `PredictJigsaw` takes {_names(JigsawTask)}, and requires"
        " `num_permutations`.",
        _table(
            "DATA.TRAIN.VIEWS",
            {"name": "PIRLJigsaw", **views, "photometric": "`{}`"},
            {
                "name": "``PIRLJigsaw``, ``PIRLRotation``, ``PIRLRotationJigsaw``, ``PIRLImage``,"
                " ``PredictJigsaw`` or ``PredictRotation``",
                **_described(JigsawViews),
                "photometric": "the keys of the next table; ``DATA.TRAIN.PHOTOMETRIC`` by default",
            },
            JigsawViews,
        ),
        "## Photometric augmentation: `DATA.TRAIN.PHOTOMETRIC`",
        "Views of all kinds take these keys: here, for overlays, or in an entry's"
        " `photometric: {…}`.",
        _settings_table("DATA.TRAIN.PHOTOMETRIC", Photometric),
        "## Other values",
        _fixed(VALUES),
        "## Environment variables",
        _environment(),
    ]
    return "\n\n".join(parts) + "\n"


def documented() -> set[str]:
    """All keys that the page has a row for, in full."""
    found = set()
    for part in page().split("\n## "):
        section = re.match(r".*`([A-Z][\w.]+)`\n", part)
        for name in re.findall(r"^\| `([\w.]+)` \|", part, re.M):
            whole = "." in name or section is None
            found.add(name if whole else f"{section[1]}.{name}")
    return found


def _table(section: str, defaults: dict[str, Any], meanings: dict[str, str], made: Any) -> str:
    types = _types(made)
    rows = []
    for name, default in defaults.items():
        key = f"{section}.{name}" if section else name
        paper = PAPER.get(key, "" if section.startswith(("LOSS", "HOOKS")) else PAPER.get(name, ""))
        rows.append((name, types.get(name, "mapping"), _yaml(default), paper, meanings[name]))
    return _lines(rows)


def _settings_table(section: str, settings: Any) -> str:
    return _table(section, _defaults(settings), _described(settings), settings)


def _fixed(rows: dict[str, tuple[str, str]]) -> str:
    """Rows of keys in full, whose types are those that the checks before a run expect."""
    types = {key: OTHER_TYPES.get(key) or TABLE[key][0].expected for key in rows}
    return _lines(
        (key, types[key], row[0], PAPER.get(key, ""), row[1]) for key, row in rows.items()
    )


def _types(made: Any) -> dict[str, str]:
    """Name -> type, of the fields of a dataclass or the parameters of a class."""
    if is_dataclass(made):
        found = {field.name: field.type for field in fields(made)}
    else:
        found = {p.name: p.annotation for p in inspect.signature(made).parameters.values()}
    names = {
        name: kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        for name, kind in found.items()
    }
    names = {
        name: "tuple[float, float]" if kind == "tuple" else kind for name, kind in names.items()
    }
    return {"name": "name", **{n: TYPES[kind] for n, kind in names.items() if kind in TYPES}}


def _lines(rows: Any) -> str:
    lines = ["| key | type | default | the paper | meaning |", "|---|---|---|---|---|"]
    for name, kind, default, paper, meaning in rows:
        text = meaning.replace("``", "`").replace("|", "\\|").replace("None", "null").rstrip(".")
        lines.append(f"| `{name}` | {kind} | {default} | {paper} | {text} |")
    return "\n".join(lines)


def _environment() -> str:
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    rows = ENVIRONMENT.items()
    lines += [f"| `{n}` | {default} | {text.replace('``', '`')} |" for n, (default, text) in rows]
    return "\n".join(lines)


def _yaml(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(list(value)) if isinstance(value, (tuple, list)) else str(value)


def _defaults(settings: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(settings)}


def _parameters(made: Any) -> dict[str, Any]:
    parameters = inspect.signature(made).parameters.values()
    return {p.name: p.default for p in parameters if p.kind != p.VAR_KEYWORD}


def _names(made: Any) -> str:
    return ", ".join(f"`{name}`" for name in _parameters(made))


def _described(made: Any) -> dict[str, str]:
    """Parameter -> its text in the docstring's Args or Attributes."""
    found: dict[str, str] = {}
    for part in re.split(r"\n(?=\w+:\n)", inspect.getdoc(made) or ""):
        if not part.startswith(("Args:", "Attributes:")):
            continue
        for entry in re.findall(r"^ {4}(\w+: .*(?:\n {5,}.*)*)", part, re.M):
            name, _, text = entry.partition(": ")
            found.setdefault(name, " ".join(text.split()))
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
