"""Any network of timm (an optional dependency) as a trunk."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import LAST
from pirl_plugin.system.failures import Refused

_POOLED = ("flatten", "res5avg", LAST)
DESCRIPTION = "timm_model"
"""Buffer of a trunk with the name and options of its timm network, for checkpoints."""
_BYTES = 512


class TimmTrunk(nn.Module):
    """A network of timm without its classifier.

    Features: ``last`` or ``flatten``, ``(B, D)``, and ``res5avg``, ``(B, D, 1, 1)``, the input of
    timm's classifier; and ``stage1``, ``stage2``, …, ``(B, C, H, W)``.

    Vision transformers take images of any size that is a multiple of their patch. Their position
    embeddings are interpolated (timm's ``dynamic_img_size``), unless ``options`` turns this off.

    Args:
        architecture: timm's name, such as ``vit_tiny_patch16_224``, or an address that timm takes,
            such as ``hf-hub:OWNER/NAME``.
        options: keyword arguments of ``timm.create_model``.

    Attributes:
        arguments: arguments of the constructor, to build another network of this kind.
        title: the network in words.
        num_features: D.
        preprocessing: of the images in its training.

    Raises:
        ValueError: timm is not installed, has no such network, or the network has no such option.
    """

    preprocessing = Preprocessing()

    def __init__(self, architecture: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__()
        source = architecture
        architecture, described = resolve_source(source)
        options = _with_image_sizes(architecture, {**described, **(options or {})})
        self.net: Any = create_network(source, options)
        # The weights that the user let timm load are in the checkpoint: it need not name them.
        loading = inspect.signature(_timm().create_model).parameters
        options = {key: value for key, value in options.items() if key not in loading}
        self.arguments = {"architecture": architecture, "options": options}
        self.title = timm_title(architecture, options)
        self.register_buffer(DESCRIPTION, describe(architecture, options))
        self.num_features = network_width(self.net)
        self._fused_norm = _has_fused_norm(self.net)

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Compute features.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: names of features; by default ``flatten``.

        Returns:
            One tensor for each name, in the order of the names.

        Raises:
            ValueError: a name is unknown, or a conversion to SyncBatchNorm removed activations.
        """
        keys = out_feat_keys or ["flatten"]
        names = dict.fromkeys([*_POOLED, *self.layers])
        if unknown := set(keys).difference(names):
            raise Refused(
                f"timm's {self.arguments['architecture']} has no features {unknown}; it has "
                f"{', '.join(names)}."
            )
        if self._fused_norm and not _has_fused_norm(self.net):
            raise Refused(
                f"The conversion to SyncBatchNorm removed the activations in the batch norms of "
                f"timm's {self.arguments['architecture']}. Turn the conversion off for this "
                f"network, or use timm.layers.convert_sync_batchnorm."
            )
        named: dict[str, Tensor] = {}
        if set(keys).issubset(_POOLED):
            pooled = self.net(images)
        else:
            final, stages = self.net.forward_intermediates(images)
            pooled = self.net.forward_head(final, pre_logits=True)
            named = dict(zip(self.layers[:-1], stages, strict=True))
        named[LAST] = pooled
        named["flatten"] = pooled
        named["res5avg"] = pooled[:, :, None, None]
        return [named[key] for key in keys]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers whose features are compared: the stages that timm lists, and last."""
        if not hasattr(self.net, "forward_intermediates"):
            return (LAST,)
        return (*(f"stage{number + 1}" for number in range(len(self.net.feature_info))), LAST)

    @property
    def pooling(self) -> str:
        """Timm's name of the last pooling, such as ``avg`` or ``token``, or nothing."""
        for module in (self.net, getattr(self.net, "head", None)):
            pooling = getattr(module, "global_pool", None)
            name = pooling if isinstance(pooling, str) else getattr(pooling, "pool_type", "")
            if name:
                return str(name)
        return ""


def create_network(architecture: str, options: Mapping[str, Any]) -> nn.Module:
    """Build a network of timm with random weights, without a classifier.

    Raises:
        ValueError: see :class:`TimmTrunk`.
    """
    timm = _timm()
    resolve_source(architecture)  # timm takes all options that it finds at an address
    try:
        net: nn.Module = timm.create_model(architecture, num_classes=0, **options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise Refused(
            f"timm {timm.__version__} cannot create {timm_title(architecture, options)}: {error}. "
            f"Choose a name from timm.list_models(), and options that this network has."
        ) from error
    return net


def timm_title(architecture: str, options: Mapping[str, object]) -> str:
    """Return a title of a network.

    Example:
        >>> timm_title("vit_tiny_patch16_224", {"img_size": 48})
        "timm's vit_tiny_patch16_224 (img_size=48)"
    """
    listed = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"timm's {architecture}{f' ({listed})' if listed else ''}"


def resolve_source(source: str) -> tuple[str, dict[str, object]]:
    """Return timm's name of a network and its options, from a name, or an address or folder.

    Raises:
        Refused: the description at the address is not taken: see :func:`check_description`.
    """
    kind, colon, place = source.partition(":")
    if not colon:
        return source, {}
    if kind == "local-dir":
        config = json.loads(Path(place, "config.json").read_text())
        return check_description(config.get("architecture"), config.get("model_args") or {}, source)
    _timm()
    from timm.models import load_model_config_from_hf

    _, architecture, options = load_model_config_from_hf(place)
    return check_description(architecture, options or {}, source)


def network_width(net: Any) -> int:
    """Return the width of the classifier's input."""
    return int(getattr(net, "head_hidden_size", None) or net.num_features)


def describe(architecture: str, options: Mapping[str, object]) -> Tensor:
    """Encode name and options of a network as uint8 ``(512·n,)``, for a state dictionary.

    Example:
        >>> read_description(describe("test_vit", {"img_size": 48}), "in.torch")
        ('test_vit', {'img_size': 48})
    """
    text = json.dumps({"model": architecture, "options": dict(options)}).encode()
    blocks = math.ceil(len(text) / _BYTES)
    return torch.tensor(list(text.ljust(blocks * _BYTES)), dtype=torch.uint8)


def read_description(tensor: Tensor, file: str) -> tuple[str, dict[str, object]]:
    """Decode the name and the options that :func:`describe` encoded.

    Raises:
        Refused: see :func:`check_description`.
    """
    try:
        content = json.loads(bytes(tensor.to(torch.uint8).flatten().tolist()))
    except ValueError:
        content = None
    if not isinstance(content, Mapping):
        raise Refused(
            f"{file} describes a timm network in its tensor {DESCRIPTION}, but not as this package "
            f"writes it. Give the network's timm name."
        )
    return check_description(content.get("model"), content.get("options"), file)


def check_description(
    architecture: object, options: object, file: str
) -> tuple[str, dict[str, object]]:
    """Return a file's description of a network, if building it opens, fetches and runs nothing.

    Args:
        architecture: timm's name of the network; not an address or a folder, as timm would take.
        options: keyword arguments of ``timm.create_model``. Only the constructor's are taken,
            because others name weights; their values are plain, and no text is a path or address.
        file: its name, for errors.

    Raises:
        Refused: timm has no such network, or an option is not taken; or timm is not installed.
    """
    described = f"{file} describes the timm network {architecture} {options}, but"
    name, _, tag = str(architecture).partition(".")  # the tag names weights, which are not loaded
    if not isinstance(architecture, str) or name not in _timm().list_models() or not _is_plain(tag):
        raise Refused(f"{described} timm has no such network. Give the network's timm name.")
    if not isinstance(options, Mapping):
        raise Refused(f"{described} its options have no names. Give the network's timm name.")
    with torch.device("meta"):
        network = create_network(name, {})
    # A trunk has no classifier, whatever the network in the file had.
    options = {key: value for key, value in options.items() if key != "num_classes"}
    taken = _constructor_options(network)
    for key, value in options.items():
        if key not in taken or not _is_plain(value):
            raise Refused(
                f"{described} {key} = {value} is not a plain option of this network. Give the "
                f"network's timm name and options."
            )
    return architecture, options


def _constructor_options(network: nn.Module) -> set[str]:
    """Return the names of options of a network's constructor, and of those of its base classes."""
    options: set[str] = set()
    for kind in type(network).__mro__:
        if kind is nn.Module:
            break
        options.update(inspect.signature(kind).parameters)
    return options


def _is_plain(value: object) -> bool:
    """Return whether a value is a number, a boolean, None, a word, or a list of such values."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, str):
        return re.fullmatch(r"\w*", value) is not None  # no path, address or interpolation
    return value is None or isinstance(value, (bool, int, float))


def read_timm_section(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the network's name and options from a ``MODEL.TRUNK.PIRL_TIMM`` section.

    Raises:
        ValueError: a key is unknown, or there is no name.
    """
    if not section.get("NAME") or not section.keys() <= {"NAME", "OPTIONS"}:
        raise Refused(
            f"expected NAME, a timm network, and OPTIONS for timm.create_model, such as "
            f"{{NAME: resnet50}}, got {dict(section)}"
        )

    def plain(value: Any) -> object:
        """Convert a class of the configuration to a plain dictionary or list."""
        return dict(value) if hasattr(value, "keys") else list(value)

    options = json.dumps(section.get("OPTIONS") or {}, default=plain)
    return str(section["NAME"]), json.loads(options)


def _with_image_sizes(architecture: str, options: Mapping[str, object]) -> dict[str, object]:
    """Add ``dynamic_img_size`` to the options if the network has this option."""
    with torch.device("meta"):
        net = create_network(architecture, {})
    dynamic = "dynamic_img_size" in inspect.signature(type(net).__init__).parameters
    return {**({"dynamic_img_size": True} if dynamic else {}), **options}


def _timm() -> ModuleType:
    """Import timm, which is an optional dependency.

    Raises:
        Refused: it is not installed.
    """
    try:
        import timm
    except ModuleNotFoundError:
        raise Refused(
            "This network needs timm, which is not installed. Run pip install 'pirl-plugin[timm]'."
        ) from None
    return timm


def _has_fused_norm(net: nn.Module) -> bool:
    from timm.layers import BatchNormAct2d

    return any(isinstance(module, BatchNormAct2d) for module in net.modules())
