"""What is wrong with the overrides of a command, in one sentence, with the nearest names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from omegaconf import OmegaConf

from pirl_plugin.utils.config_root import config_root
from pirl_plugin.utils.hydra_overrides import in_quotes
from pirl_plugin.vissl.checks.names import close_names, nearest
from pirl_plugin.vissl.checks.refusal import refuse, refuse_tilde

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omegaconf import DictConfig

_ODD = re.compile(r"[^A-Za-z0-9_./+\-,\[\]{}:$]")  # what a value has in quotes alone
_LISTED = "pirl-plugin configs lists them"


def refuse_overrides(
    error: Exception, overrides: Sequence[str], compose: Callable[[list[str]], DictConfig]
) -> NoReturn:
    """Say in one sentence why Hydra could not compose.

    Args:
        error: Hydra's or OmegaConf's.
        overrides: of the command line.
        compose: composes overrides; it is asked which keys there are.

    Raises:
        SystemExit: the sentence.
    """
    kind, text = type(error).__name__, str(error).strip()
    asked = f"cannot compose {' '.join(overrides)}"
    check_removed(overrides, error)
    if kind == "OverrideParseException" or text.startswith("Ambiguous value"):
        refuse(_unparsed(text, overrides), error)
    if kind == "MissingConfigException":
        missing = re.search(r"[Cc]ould not find '([^']+)'|load '([^']+)'", text)
        name = next(filter(None, missing.groups())) if missing else ""
        name = name.removeprefix("config/")
        refuse(
            f"{asked}: expected the name of a config, found '{name}'; "
            f"{nearest(name, config_names())}; {_LISTED}",
            error,
        )
    if text.startswith("You must specify 'config'"):
        refuse(
            f"{asked}: expected config=NAME, such as config=pretrain/pirl/jigsaw_8node; {_LISTED}",
            error,
        )
    groups = [o.partition("=")[0] for o in overrides if o.startswith("+config/")]
    repeated = next((group for group in groups if groups.count(group) > 1), None)
    if repeated is not None:
        given = [o for o in overrides if o.startswith(f"{repeated}=")]
        refuse(f"{' '.join(given)}: expected one overlay of a group; remove one", error)
    unknown = re.match(r"Could not override '([^']+)'", text)
    if unknown and "/" in unknown[1]:
        refuse(f"{asked}: {unknown[1]} is an overlay; write +{unknown[1]}=NAME", error)
    if unknown:
        key = unknown[1]
        names = _keys(overrides, compose)
        is_typo = close_names(key, names, count=1, cutoff=0.8)
        add = "" if is_typo else f", or write +{key}=… to add one"
        refuse(
            f"{key} = {_value(key, overrides)}: expected an existing key; "
            f"{nearest(key, names)}{add}",
            error,
        )
    refuse(f"{asked}: {text.splitlines()[0].rstrip('.')}", error)


def check_removed(overrides: Sequence[str], error: Exception | None = None) -> None:
    """Refuse to remove a key: host and plugin read all of them.

    Raises:
        SystemExit: the first override that does.
    """
    removed = next((override for override in overrides if override.startswith("~config.")), None)
    if removed is not None:
        refuse(
            f"{removed}: expected a key that keeps a value, since each is read; write "
            f"{removed[1:].partition('=')[0]}=VALUE, with null for none",
            error,
        )


def check_top_level(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse a key beside ``config``, which nobody reads: its ``config.`` was forgotten.

    Raises:
        SystemExit: the first such override.
    """
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if not override.startswith("+") or "/" in key or key.startswith(("config.", "hydra.")):
            continue
        names = _leaves(OmegaConf.to_container(composed.config), "config")
        refuse(f"{override}: expected a key that is read, below config.; {nearest(key, names)}")


# Group of overlays -> what the config must have, the test of it, and what to take instead.
_GROUPS: dict[str, tuple[str, Callable[[DictConfig], bool], str]] = {
    "bank": (
        "a config with a memory bank",
        lambda config: config.LOSS.name == "pirl_loss",
        "remove it, or take config=pretrain/pirl/jigsaw_8node",
    ),
    "finetune": (
        "a config that trains the trunk on labels",
        lambda config: (
            not config.MODEL.FEATURE_EVAL_SETTINGS.EVAL_MODE_ON
            and bool(config.DATA.TRAIN.LABEL_SOURCES)
        ),
        "for a linear classifier on a frozen trunk take +config/pirl/linear=NAME",
    ),
    "linear": (
        "a config that evaluates a frozen trunk",
        lambda config: config.MODEL.FEATURE_EVAL_SETTINGS.EVAL_MODE_ON,
        "for pre-training take +config/pirl/models=NAME, and for fine-tuning +config/pirl/finetune",
    ),
    "models": (
        "a pre-training config",
        lambda config: not config.DATA.TRAIN.LABEL_SOURCES,
        "for benchmarks take +config/pirl/linear=NAME or +config/pirl/finetune=NAME",
    ),
    "semi_supervised": (
        "a semi-supervised benchmark",
        lambda config: config.OPTIMIZER.param_schedulers.lr.name == "multistep",
        "take config=benchmark/pirl/semi_supervised_imagenet1k_1percent",
    ),
    "transforms": (
        "a pre-training config",
        lambda config: "PHOTOMETRIC" in config.DATA.TRAIN and "VIEWS" in config.DATA.TRAIN,
        "remove it, or take config=pretrain/pirl/jigsaw_8node",
    ),
}


def check_overlays(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse an overlay that changes nothing in its config, or half of what must change.

    Raises:
        SystemExit: the first such overlay.
    """
    for override in overrides:
        found = re.fullmatch(r"\++config/pirl/(\w+)=([\w.-]+)", override)
        if found is None or found[1] not in _GROUPS:
            continue
        expected, holds, instead = _GROUPS[found[1]]
        if not holds(composed.config):
            refuse(f"{override}: expected {expected}; {instead}")


_RATE = "config.OPTIMIZER.param_schedulers.lr."
_SCALED = ("value", "values", "start_value")  # are overwritten, from those of auto_lr_scaling
_SCALE = ("auto_lr_scaling.base_value", "auto_lr_scaling.base_lr_batch_size")


def check_rate(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse an override of the learning rate that the host would not read.

    Raises:
        SystemExit: the first such override.
    """
    scales = OmegaConf.select(composed, f"{_RATE}auto_lr_scaling.auto_scale")
    for override in overrides:
        name = override.lstrip("+").partition("=")[0].removeprefix(_RATE)
        if name in _SCALED and scales is True:
            refuse(
                f"{override}: expected a rate that is read: with {_RATE}auto_lr_scaling.auto_scale "
                f"= True it follows the batch; set {_RATE}{_SCALE[0]}=RATE, which is for as many "
                f"images as {_SCALE[1]} says, or set auto_scale=false as well"
            )
        if name in _SCALE and scales is False:
            refuse(
                f"{override}: expected a rate that is read: this config has "
                f"{_RATE}auto_lr_scaling.auto_scale = False; set {_RATE}start_value=RATE, or set "
                f"auto_scale=true as well"
            )


def config_names() -> list[str]:
    """Names of complete configs and overlays, ours and the host's, as ``config=NAME`` takes them.

    Overlays are ``pirl/GROUP/NAME``, for ``+config/pirl/GROUP=NAME``.
    """
    spec = importlib.util.find_spec("configs")
    folders = [config_root(), *map(Path, spec.submodule_search_locations or ())] if spec else []
    return [
        path.relative_to(folder / "config").with_suffix("").as_posix()
        for folder in folders or [config_root()]
        for path in sorted((folder / "config").rglob("*.yaml"))
        if path.parent.name != "base"
    ]


def _unparsed(text: str, overrides: Sequence[str]) -> str:
    ambiguous = re.search(r"Ambiguous value for argument '([^=']+)=([^']*)'", text)
    if ambiguous:
        key, value = ambiguous.groups()
        one = in_quotes(key, value)
        if re.fullmatch(r"[\d.,]+", value):
            one = f"{key}={value.replace(',', '')} for a number"
        return (
            f"{key} = {value}: expected one value; commas separate several; write {one}, "
            f"{key}=[{value}] for a list"
        )
    wrong = next((o for o in overrides if "=" not in o and not o.startswith("~")), None)
    if wrong is not None:
        if (parted := _parted(overrides, wrong)) is not None:
            return parted
        close = close_names(wrong, config_names(), count=1, cutoff=0.6)
        instead = f"config={close[0]}" if close else "config=pretrain/pirl/jigsaw_8node"
        return f"{wrong}: expected KEY=VALUE; write {instead} or config.KEY=VALUE"
    values = {override: override.partition("=")[2] for override in overrides}
    for override, value in values.items():
        for path in value.strip("[]").split(","):
            refuse_tilde(override.partition("=")[0], path.strip())
    asked = [override for override, value in values.items() if value and f"'{value}'" in text]
    odd = [o for o in asked or overrides if _ODD.search(o.partition("=")[2])]
    unclosed = next((o for o in odd if re.search(r"[=\[,]'", o) and o.count("'") % 2), None)
    if unclosed is not None:
        return f"{unclosed}: expected quotes in pairs; close the one that is open, or remove it"
    if len(odd) == 1 and "{" not in odd[0]:
        key, value = odd[0].partition("=")[::2]
        inner = value[1:-1].split(",") if value[:1] + value[-1:] == "[]" else value
        example = in_quotes(key, inner)
    else:
        example = "\"KEY='…'\", and in a list \"KEY=['…']\""
    return (
        f"cannot compose {' '.join(asked or overrides)}: {text.splitlines()[0].rstrip('.')}; a "
        f"value with characters other than letters, digits and ./_-+ needs quotes: {example}"
    )


def _parted(overrides: Sequence[str], word: str) -> str | None:
    """What is wrong with a list that a space divides into words of the shell; None if none is."""
    first = overrides.index(word) - 1
    if first < 0 or overrides[first].count("[") <= overrides[first].count("]"):
        return None
    last = next((i for i, o in enumerate(overrides) if i > first and o.endswith("]")), first + 1)
    words = overrides[first : last + 1]
    return f"{' '.join(words)}: expected no spaces within brackets; write {''.join(words)}"


def _keys(overrides: Sequence[str], compose: Callable[[list[str]], DictConfig]) -> list[str]:
    """All keys of the config and overlays that the overrides name."""
    from omegaconf import OmegaConf

    files = [o for o in overrides if o.startswith(("config=", "+config/"))]
    try:
        tree = OmegaConf.to_container(compose(files))
    except Exception:  # what is wrong with them is said by another sentence, later
        return []
    return list(_leaves(tree, ""))


def _leaves(tree: object, path: str) -> list[str]:
    """Dotted keys of all values and sections."""
    entries = tree.items() if isinstance(tree, dict) else ()
    found = [path] if path else []
    for name, below in entries:
        found += _leaves(below, f"{path}.{name}" if path else str(name))
    return found


def _value(key: str, overrides: Sequence[str]) -> str:
    found = [o.partition("=")[2] for o in overrides if o.partition("=")[0] == key]
    return found[-1] if found else "…"
