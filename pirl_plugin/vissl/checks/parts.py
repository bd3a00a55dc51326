"""Check what the plugin's own classes read, by building them where the run is launched."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import VIEWS
from pirl_plugin.vissl.checks.keys import TABLE, find
from pirl_plugin.vissl.checks.names import close_names, nearest
from pirl_plugin.vissl.checks.refusal import refuse, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import nn
    from vissl.config import AttrDict

_LARGEST_SIDE = 8192  # of a view, pixels
# Transform -> its options in pixels.
_SIDES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(VIEWS, ("image_size", "patches_crop_size", "patch_size")),
    **dict.fromkeys(("Resize", "CenterCrop", "RandomResizedCrop"), ("size",)),
}

# Key, and the host's registry of what it may name.
REGISTRIES: dict[str, str] = {
    "LOSS.name": "classy_vision.losses:LOSS_REGISTRY",
    "OPTIMIZER.name": "classy_vision.optim:OPTIMIZER_REGISTRY",
    "METERS.names": "classy_vision.meters:METER_REGISTRY",
    "MODEL.TRUNK.NAME": "vissl.models.trunks:MODEL_TRUNKS_REGISTRY",
    "MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER": "vissl.models.trunks:MODEL_TRUNKS_REGISTRY",
    "TRAINER.TRAIN_STEP_NAME": "vissl.trainer.train_steps:TRAIN_STEP_REGISTRY",
    **{
        f"DATA.{split}.{key}": registry
        for split in ("TRAIN", "TEST")
        for key, registry in {
            "COLLATE_FUNCTION": "vissl.data.collators:COLLATOR_REGISTRY",
            "DATA_SOURCES": "vissl.data:DATASET_SOURCE_MAP",
            "LABEL_SOURCES": "vissl.data:DATASET_SOURCE_MAP",
        }.items()
    },
}
_NEED_NO_REGISTRY = ("", "default_collate")
# Sections whose keys are known, so that a name close to one of them is a typo. A name that is close
# to none may belong to another plugin.
_SECTIONS = (
    "", "CHECKPOINT", "DATA", "DATA.TEST", "DATA.TRAIN", "DISTRIBUTED", "HOOKS", "LOSS", "MACHINE",
    "METERS", "MODEL", "MODEL.FEATURE_EVAL_SETTINGS", "MODEL.HEAD", "MODEL.SYNC_BN_CONFIG",
    "MODEL.TRUNK", "MODEL.WEIGHTS_INIT", "OPTIMIZER", "SLURM", "TRAINER",
)  # fmt: skip
_CLOSE = 0.75


def check_parts(config: dict[str, object]) -> None:
    """Refuse names that are not registered and options that our classes cannot use.

    Args:
        config: the ``config`` section, composed, whose values the table has let pass.

    Raises:
        SystemExit: the first mistake.
    """
    import vissl.utils.distributed_launcher  # noqa: F401  (imports, and so registers, all parts)

    _check_registered(config)
    check_known(config)
    counted = find(config, "LOSS.pirl_loss.num_train_samples")
    if counted not in (None, -1):
        refuse(
            f"config.LOSS.pirl_loss.num_train_samples = {shown(counted)}: expected -1, as a run "
            f"counts its images itself; remove it, or take fewer of them with "
            f"config.DATA.TRAIN.DATA_LIMIT={shown(counted)}"
        )
    check_loss(config)
    for split in ("TRAIN", "TEST"):
        views = find(config, f"DATA.{split}.VIEWS")  # of which ours make their one transform
        for index, entry in enumerate(find(config, f"DATA.{split}.TRANSFORMS") or []):
            place = "VIEWS" if entry == views else f"TRANSFORMS.{index}"
            _check_transform(f"config.DATA.{split}.{place}", entry)
    _check_heads(config)


def check_loss(config: Mapping[str, Any], num_images: int = -1) -> None:
    """Refuse a ``LOSS.pirl_loss`` section that the loss cannot use.

    Args:
        config: the ``config`` section.
        num_images: |D|; −1 where the data has not been looked at yet.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    if config["LOSS"]["name"] != "pirl_loss":
        return
    from pirl_plugin.losses.config import PIRLLossConfig

    bank = config["LOSS"]["pirl_loss"].get("bank")
    if not isinstance(bank, (dict, type(None))):
        refuse(
            f"config.LOSS.pirl_loss.bank = {shown(bank)}: expected a section of keys; set one of "
            f"its keys, such as config.LOSS.pirl_loss.bank.momentum=0.5"
        )
    try:
        section = {**config["LOSS"]["pirl_loss"], "num_train_samples": num_images}
        PIRLLossConfig.from_mapping(section)
    except (TypeError, ValueError, OverflowError) as error:
        sentence = str(error)
        refuse(f"config.{sentence}" if sentence.startswith("LOSS.") else sentence, error)


def check_known(config: dict[str, object]) -> None:
    """Refuse a key that nothing reads and that is a known key but for a typo."""
    defaults = _hosts_defaults()
    for section in _SECTIONS:
        found = find(config, section) if section else config
        known = set(find(defaults, section) or {} if section else defaults)
        prefix = f"{section}." if section else ""
        known |= {k.removeprefix(prefix).split(".")[0] for k in TABLE if k.startswith(prefix)}
        for name in found if isinstance(found, dict) else ():
            if name in known or not (near := close_names(str(name), known, cutoff=_CLOSE)):
                continue
            refuse(
                f"config.{prefix}{name} = {shown(found[name])}: expected a key that is read; the "
                f"nearest is config.{prefix}{near[0]}"
            )


def _hosts_defaults() -> dict[str, object]:
    import vissl.config
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = Path(vissl.config.__file__).with_name("defaults.yaml").read_text()
    defaults: dict[str, object] = yaml.load(text, loader)["config"]
    return defaults


def _check_registered(config: dict[str, object]) -> None:
    from torch import nn

    for key, registry in REGISTRIES.items():
        value = find(config, key)
        if value is None:
            continue
        module, _, name = registry.partition(":")
        known = {*getattr(importlib.import_module(module), name), *_NEED_NO_REGISTRY}
        for entry in value if isinstance(value, list) else [value]:
            if entry not in known and not (key == "LOSS.name" and hasattr(nn, entry)):
                refuse(
                    f"config.{key} = {shown(value)}: expected "
                    f"{'names' if isinstance(value, list) else 'a name'} that "
                    f"{'are' if isinstance(value, list) else 'is'} registered; "
                    f"{nearest(str(entry), known)}"
                )


def _check_transform(key: str, entry: dict[str, Any]) -> None:
    from classy_vision.dataset.transforms import TRANSFORM_REGISTRY
    from torchvision import transforms
    from vissl.data.ssl_transforms import get_transform

    name = entry["name"]
    entry = {"name": name, **entry}  # its name first, in what is shown
    known = {*TRANSFORM_REGISTRY, *(n for n in vars(transforms) if n[:1].isupper())}
    if name not in known:
        refuse(
            f"{key}.name = {shown(name)}: expected the name of a transform; "
            f"{nearest(str(name), known)}"
        )
    photometric = entry.get("photometric")
    if name in VIEWS and photometric is not None and not isinstance(photometric, dict):
        refuse(
            f"{key}.photometric = {shown(photometric)}: expected a section of keys; set "
            f"{key}.photometric={{brightness: 0.4}}"
        )
    for side in (side for side in _SIDES.get(name, ()) if side in entry):
        values = entry[side] if isinstance(entry[side], list) else [entry[side]]
        good = [type(value) is int and 1 <= value <= _LARGEST_SIDE for value in values]
        if not all(good) or not good:
            refuse(
                f"{key}.{side} = {shown(entry[side])}: expected a whole number of pixels from 1 "
                f"to {_LARGEST_SIDE}; set {key}.{side}=224"
            )
    try:
        get_transform([dict(entry)])
    except Exception as error:  # whatever a transform of the host raises
        option, _, rest = str(error).partition(" = ")
        if name in VIEWS and option in entry and ": expected" in rest:
            refuse(f"{key}.{error} (name: {name})", error)
        refuse(f"{key} = {shown(entry)}: expected options that {name} takes; {error}", error)


def _check_heads(config: dict[str, Any]) -> None:
    from vissl.config import AttrDict
    from vissl.models.heads import MODEL_HEADS_REGISTRY

    model = AttrDict({**config["MODEL"], "_MODEL_INIT_SEED": 0})
    for key, entry in _head_modules(config["MODEL"]["HEAD"]["PARAMS"], "config.MODEL.HEAD.PARAMS"):
        shape = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], dict)
        if not shape:
            refuse(
                f"{key} = {shown(entry)}: expected a head, [NAME, {{KEY: VALUE}}]; set "
                f"{key}=[pirl_head,{{in_dim: 2048}}]"
            )
        name, options = entry
        if name not in MODEL_HEADS_REGISTRY:
            refuse(
                f"{key}.0 = {shown(name)}: expected the name of a head; "
                f"{nearest(str(name), MODEL_HEADS_REGISTRY)}"
            )
        try:
            _build_on_meta(MODEL_HEADS_REGISTRY[name], model, options)
        except Exception as error:  # whatever a head of the host raises
            refuse(f"{key}.1 = {shown(options)}: expected options of {name}; {error}", error)


def _head_modules(params: list[Any], key: str) -> Iterable[tuple[str, Any]]:
    """Each head's key and entry; a head may be a list of modules, one after the other."""
    for index, entry in enumerate(params):
        if isinstance(entry, list) and entry and isinstance(entry[0], list):
            yield from _head_modules(entry, f"{key}.{index}")
        else:
            yield f"{key}.{index}", entry


def _build_on_meta(
    head: Callable[..., nn.Module], model: AttrDict, options: dict[str, object]
) -> None:
    """Build without memory; sizes of a wrong type or below 1 are refused as they would be."""
    import torch

    for name, value in options.items():
        sizes = value if isinstance(value, list) else [value]
        if name in ("in_dim", "out_dim", "num_patches", "dims", "in_channels") and not all(
            type(size) is int and 1 <= size < 2**24 for size in sizes
        ):
            raise ValueError(f"{name} = {shown(value)} is not a whole number of at least 1")
    with torch.device("meta"):
        head(model, **options)
