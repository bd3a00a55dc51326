"""Write docs/reference/configuration.md from the code: ``python docs/make_configuration.py``."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "configuration.md"
sys.path.insert(0, str(ROOT))

from pirl_plugin.checkpoints.run_folder import Keep  # noqa: E402
from pirl_plugin.data.photometric import Photometric  # noqa: E402
from pirl_plugin.data.views.jigsaw import JigsawViews  # noqa: E402
from pirl_plugin.data.views.pretext import JigsawTask  # noqa: E402
from pirl_plugin.data.views.rotation import RotationViews  # noqa: E402
from pirl_plugin.hooks.input_hook import PIRLInputHook  # noqa: E402
from pirl_plugin.hooks.run_settings import RunSettings  # noqa: E402
from pirl_plugin.host.checks.keys import TABLE  # noqa: E402
from pirl_plugin.losses.config import BankConfig, PIRLLossConfig  # noqa: E402
from pirl_plugin.losses.pirl_loss import PIRLLoss  # noqa: E402
from pirl_plugin.models.head import PIRLHead  # noqa: E402

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
}
BANK = {
    "momentum": "m of row ← normalise(m·row + (1 − m)·f(v_I))",
    "placement": "``replicated`` on each rank, or ``sharded``: each rank holds 1/W of the rows",
    "dtype": "of the rows: float32, bfloat16 or float16",
    "seed": "of the first rows and of the draw; null: ``SEED_VALUE``",
    "overlap": "embeddings travel between ranks while the loss is computed",
}
TRUNKS = {
    "MODEL.TRUNK.PIRL_RESNET.DEPTH": ("18", "of ``pirl_resnet``"),
    "MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER": ("1", "of all stages"),
    "MODEL.TRUNK.PIRL_RESNET.SMALL_STEM": ("false", "3 × 3 stem without pooling"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER": ("required", "trunk of each member"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": ("required", "a checkpoint of each member"),
}
TRAINER = {
    "PIRL_MICRO_BATCHES": (
        "1",
        "parts that each process's batch goes through the model in, whose gradients add up; it "
        "multiplies the batch of the overlays of machines, and has to divide "
        "``DATA.TRAIN.BATCHSIZE_PER_REPLICA``",
    ),
    "TRAIN_STEP_NAME": (
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
        _table("LOSS.pirl_loss", loss, _described(PIRLLoss)),
        "## The memory bank: `LOSS.pirl_loss.bank`",
        _table("LOSS.pirl_loss.bank", bank, BANK),
        "## Input on the device: `HOOKS.PIRL_INPUT`",
        _table("HOOKS.PIRL_INPUT", _parameters(PIRLInputHook), _described(PIRLInputHook)),
        "## Faults of a run: `HOOKS.PIRL_RUN`",
        _table("HOOKS.PIRL_RUN", _defaults(RunSettings), _described(RunSettings)),
        "## Checkpoints that are kept: `CHECKPOINT.PIRL`",
        _table("CHECKPOINT.PIRL", _defaults(Keep), _described(Keep)),
        "## The train step: `TRAINER`",
        _lines((name, default, "", meaning) for name, (default, meaning) in TRAINER.items()),
        "## Heads: `pirl_head`",
        "An entry of `MODEL.HEAD.PARAMS`: `[pirl_head, {in_dim: 2048, …}]`.",
        _table("", head, _described(PIRLHead)),
        "## Trunks",
        "`MODEL.TRUNK.NAME` is `pirl_resnet`, `pirl_ensemble`, `pirl_timm`, or one of VISSL's.",
        _lines(
            (
                (key, default, "", f"{meaning}: {TABLE[key][0].expected}")
                for key, (default, meaning) in TRUNKS.items()
            )
        ),
        "`MODEL.TRUNK.PIRL_TIMM.NAME` is a network of timm, `MODEL.TRUNK.PIRL_TIMM.OPTIONS` keyword"
        " arguments of `timm.create_model`.",
        "## Views: the entry of `DATA.TRAIN.TRANSFORMS`",
        "In this plugin's configs the first transform is also the mapping `DATA.TRAIN.VIEWS`:"
        " `config.DATA.TRAIN.VIEWS.flip=image`. `PIRLJigsaw` and `PIRLRotationJigsaw` take all of"
        f" these; `PIRLRotation`, `PIRLImage` and `PredictRotation` take"
        f" {_names(RotationViews)}; `PredictJigsaw` takes {_names(JigsawTask)}, and requires"
        " `num_permutations`.",
        _table("", views, _described(JigsawViews)),
        "All of them take the photometric augmentation too, also as `photometric: {…}` or, for"
        " overlays, `DATA.TRAIN.PHOTOMETRIC`:",
        _table("", _defaults(Photometric), _described(Photometric)),
        "## Environment variables",
        _lines((name, default, "", text) for name, (default, text) in ENVIRONMENT.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _table(section: str, defaults: dict[str, Any], meanings: dict[str, str]) -> str:
    rows = []
    for name, default in defaults.items():
        key = f"{section}.{name}" if section else name
        paper = PAPER.get(key, PAPER.get(name, "") if not section else "")
        rows.append((name, _yaml(default), paper, meanings[name]))
    return _lines(rows)


def _lines(rows: Any) -> str:
    lines = ["| key | default | the paper | meaning |", "|---|---|---|---|"]
    for name, default, paper, meaning in rows:
        text = meaning.replace("``", "`").replace("|", "\\|").replace("None", "null").rstrip(".")
        lines.append(f"| `{name}` | {default} | {paper} | {text} |")
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
    for name, text in found.items():
        if text in ("likewise.", "the same for the crop that is cut (the paper: at least 60 %)."):
            found[name] = {"std": "standard deviation of the channels"}.get(
                name, "smallest and largest share of the image's area for the crop that is cut"
                if name == "patches_scale" else "as the one above",
            )  # fmt: skip
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
