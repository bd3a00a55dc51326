"""Any timm network as a trunk (timm is an optional dependency)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence, Set
from textwrap import shorten
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.models.resnet import LAST
from pirl_plugin.system.failures import Refused, is_number

_POOLED = ("flatten", "res5avg", LAST)
_LARGEST_OPTION = 2**14


class TimmTrunk(nn.Module):
    """A timm network without its classifier.

    Features: ``last`` or ``flatten``, ``(B, D)``, and ``res5avg``, ``(B, D, 1, 1)``, the input to
    timm's classifier; and ``stage1``, ``stage2``, …, ``(B, C, H, W)``.

    Vision transformers accept images of any size that is a multiple of their patch size. Position
    embeddings are interpolated (timm's ``dynamic_img_size``), unless ``options`` disables it.

    Args:
        architecture: timm's name, such as ``vit_tiny_patch16_224``.
        options: keyword arguments for ``timm.create_model``.

    Attributes:
        net: the timm network.
        network_config: name and options, and the images that the network expects. The size is
            timm's for this network. Mean and standard deviation belong to weights: they are timm's
            if the name has a tag, or timm loads its own weights.
        num_features: D.

    Raises:
        ValueError: timm is not installed, has no such network, or the network has no such option.
    """

    def __init__(self, architecture: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__()
        options = {"dynamic_img_size": True, **(options or {})}
        self.net: Any
        try:
            self.net = create_network(architecture, options)
        except Refused:  # most networks have no such option, and accept images of any size
            if options.pop("dynamic_img_size") is not True:
                raise
            self.net = create_network(architecture, options)
        # Options for loading select weights, which are in our checkpoints.
        loading = _loading_options()
        recorded = {key: value for key, value in options.items() if key not in loading}
        weights: Any = self.net.pretrained_cfg
        size = options.get("img_size") or weights["input_size"][-1]
        size = size[0] if isinstance(size, (list, tuple)) else size
        name = f"timm's {architecture}"
        config = NetworkConfig(architecture, recorded).with_values(name, size=size)
        has_timms_weights = options.get("pretrained") or "." in architecture
        if has_timms_weights and config.channels == len(weights["mean"]):
            config = config.with_values(name, mean=weights["mean"], std=weights["std"])
        self.network_config = config
        width: Any = getattr(self.net, "head_hidden_size", None) or self.net.num_features
        self.num_features = int(width)
        self._fused_norm = _has_fused_norm(self.net)

    def forward(self, images: Tensor) -> Tensor:
        """Map normalized images, float ``(B, C, H, W)``, to pooled features ``(B, D)``."""
        return self.named_features(images, [LAST])[0]

    def named_features(self, images: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Compute features at several layers in one pass.

        Args:
            images: normalized, float ``(B, C, H, W)``.
            names: feature names.

        Returns:
            One tensor per name, in the same order.

        Raises:
            KeyError: a name is unknown.
            ValueError: a conversion to SyncBatchNorm removed activations.
        """
        if self._fused_norm and not _has_fused_norm(self.net):
            raise Refused(
                f"The conversion to SyncBatchNorm removed the activations in the batch norms of "
                f"{self.network_config.name}. Disable the conversion for this network, or use "
                f"timm.layers.convert_sync_batchnorm."
            )
        named: dict[str, Tensor] = {}
        if set(names).issubset(_POOLED):
            pooled = self.net(images)
        else:
            final, stages = self.net.forward_intermediates(images)
            pooled = self.net.forward_head(final, pre_logits=True)
            named = dict(zip(self.layers[:-1], stages, strict=True))
        named[LAST] = pooled
        named["flatten"] = pooled
        named["res5avg"] = pooled[:, :, None, None]
        return [named[key] for key in names]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that can be compared: timm's stages, and last."""
        if not hasattr(self.net, "forward_intermediates"):
            return (LAST,)
        return (*(f"stage{number + 1}" for number in range(len(self.net.feature_info))), LAST)


def create_network(architecture: str, options: Mapping[str, Any]) -> nn.Module:
    """Build a timm network without a classifier, with random weights or those in ``options``.

    Raises:
        ValueError: see :class:`TimmTrunk`.
    """
    timm = _timm()
    try:
        if ":" in architecture:  # timm would use all options that it finds at an address
            raise ValueError("it is an address; download the weights, and pass the file")
        net: nn.Module = timm.create_model(architecture, num_classes=0, **options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise Refused(
            f"timm {timm.__version__} cannot create {NetworkConfig(architecture, options).name}: "
            f"{error}. Choose a name from timm.list_models(), and options that this network has."
        ) from error
    return net


def layer_names(net: Any, role: str) -> list[str]:
    """Return which of a timm network's layers are its ``classifier`` or ``first_conv``."""
    names = net.pretrained_cfg.get(role) or []
    return [names] if isinstance(names, str) else list(names)


def check_description(architecture: object, options: object) -> tuple[str, dict[str, object]]:
    """Return a file's network description, if building it opens, fetches and runs nothing.

    Args:
        architecture: timm's name for the network; not an address or a folder, which timm accepts.
        options: keyword arguments for the network's constructor. Those that ``timm.create_model``
            keeps for itself name weights; values are plain, and no text is a path or URL.

    Raises:
        Refused: timm has no such network, an option is not plain, or timm is not installed.
    """
    name = re.fullmatch(r"(\w+)(\.\w*)?", str(architecture))  # a tag names weights: not loaded here
    if name is not None and name[1] in _timm().list_models() and isinstance(options, Mapping):
        # A trunk has no classifier, even if the network in the file has one.
        options = {key: value for key, value in options.items() if key != "num_classes"}
        if all(map(_is_plain, options.values())) and not options.keys() & _loading_options():
            return name[0], options
    raise Refused(
        f"The record describes the timm network {shorten(str(architecture), 80)} "
        f"{shorten(str(options), 200)}, but timm has no such network with plain options. Pass "
        f"`timm` and `timm_options`."
    )


def _is_plain(value: object) -> bool:
    """Return whether an option is a small number, a name, True, False, None, or a list of these."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return re.fullmatch(r"\w*", value) is not None
    is_small = is_number(value) and abs(value) <= _LARGEST_OPTION  # type: ignore[arg-type]
    return is_small or value is None or isinstance(value, bool)


def _loading_options() -> Set[str]:
    """Return the names of timm's options for loading weights."""
    return inspect.signature(_timm().create_model).parameters.keys()


def _timm() -> ModuleType:
    """Import timm, which is an optional dependency.

    Raises:
        Refused: timm is not installed.
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
