"""Any network of timm (an optional dependency) as a trunk."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

# Pixels of the image for one of the feature map, as timm states it -> VISSL's name of that feature.
_BY_REDUCTION = {2: "conv1", 4: "res2", 8: "res3", 16: "res4", 32: "res5"}
_POOLED = ("flatten", "res5avg")
DESCRIPTION = "timm_model"
"""Buffer of a trunk that says in a checkpoint which network of timm it is."""
_BYTES = 512


class TimmTrunk(nn.Module):
    """A network of timm without its classifier.

    Features: ``flatten`` ``(B, D)`` and ``res5avg`` ``(B, D, 1, 1)``, the input of timm's
    classifier; ``stage1``, ``stage2``, … as timm's ``feature_info`` lists them, ``(B, C, h, w)``;
    and, where the resolution halves from each to the next, ``conv1``, ``res2``, … ``res5``.

    Vision transformers take images of any size that their patches divide: their position
    embeddings are interpolated (timm's ``dynamic_img_size``), unless ``options`` says otherwise.

    Args:
        architecture: timm's name, such as ``vit_tiny_patch16_224``.
        options: keyword arguments of ``timm.create_model``.

    Attributes:
        arguments: of the constructor, to build another network of this kind.
        width: D.

    Raises:
        ValueError: timm is not installed, has no such network, or the network has no such option.
    """

    def __init__(self, architecture: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__()
        options = _with_image_sizes(architecture, options or {})
        self.arguments = {"architecture": architecture, "options": options}
        self.net: Any = create_network(architecture, options)
        self.register_buffer(DESCRIPTION, describe(architecture, options))
        self.width = network_width(self.net)
        self._stages = _stage_names(self.net)
        self._fused_norm = _has_fused_norm(self.net)

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Compute features.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: names of features; by default ``flatten``.

        Returns:
            One tensor a name, in the order of the names.

        Raises:
            ValueError: an unknown name; or a conversion to SyncBatchNorm removed activations.
        """
        keys, known = out_feat_keys or ["flatten"], [*_POOLED, *self._stages]
        if unknown := set(keys) - set(known):
            raise ValueError(
                f"features {unknown} of timm's {self.arguments['architecture']}: expected names "
                f"among {', '.join(known)}"
            )
        if self._fused_norm and not _has_fused_norm(self.net):
            raise ValueError(
                f"config.MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN = True: expected False for "
                f"timm's {self.arguments['architecture']}, whose batch norms have activations "
                f"inside, which the conversion removes; set it to False"
            )
        indices = sorted({self._stages[key] for key in keys if key in self._stages})
        stages: dict[int, Tensor] = {}
        if indices:
            last, found = self.net.forward_intermediates(images, indices=indices)
            stages = dict(zip(indices, found, strict=True))
        else:
            last = self.net.forward_features(images)
        pooled = self.net.forward_head(last, pre_logits=True)
        named = {"flatten": pooled, "res5avg": pooled[:, :, None, None]}
        return [named[key] if key in named else stages[self._stages[key]] for key in keys]


def create_network(architecture: str, options: Mapping[str, Any]) -> nn.Module:
    """Build timm's network of a name, without a classifier, at random initialisation.

    Raises:
        ValueError: as :class:`TimmTrunk`.
    """
    try:
        import timm
    except ModuleNotFoundError:
        raise ValueError(
            f"the network '{architecture}' is timm's, and timm is not installed: pip install timm"
        ) from None
    try:
        net: nn.Module = timm.create_model(architecture, num_classes=0, **options)
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM = {architecture}, {dict(options)}: expected a network of timm "
            f"{timm.__version__} and its options; timm said: {error}"
        ) from error
    return net


def network_width(net: Any) -> int:
    """Return the width of the input of the network's classifier."""
    return int(getattr(net, "head_hidden_size", None) or net.num_features)


def describe(architecture: str, options: Mapping[str, object]) -> Tensor:
    """Encode name and options of a network as uint8 ``(512·n,)``, for a state dictionary.

    Example:
        >>> read_description(describe("resnet10t", {"img_size": 48}))
        ('resnet10t', {'img_size': 48})
    """
    text = json.dumps({"model": architecture, "options": dict(options)}).encode()
    return torch.tensor(list(text.ljust(-(-len(text) // _BYTES) * _BYTES)), dtype=torch.uint8)


def read_description(tensor: Tensor) -> tuple[str, dict[str, object]]:
    """Decode the name and the options that :func:`describe` encoded."""
    content = json.loads(bytes(tensor.to(torch.uint8).flatten().tolist()))
    return str(content["model"]), dict(content["options"])


def read_timm_section(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return name and options of the network of a ``MODEL.TRUNK.PIRL_TIMM`` section.

    Raises:
        ValueError: an unknown key, or no name.
    """
    if not section.get("NAME") or not section.keys() <= {"NAME", "OPTIONS"}:
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM = {dict(section)}: expected NAME, a network of timm, and "
            f"OPTIONS, keyword arguments of timm.create_model; write {{NAME: resnet50}}"
        )
    # As plain lists and dictionaries, whatever classes the configuration is made of.
    options = json.dumps(
        section.get("OPTIONS") or {}, default=lambda v: dict(v) if hasattr(v, "keys") else list(v)
    )
    return str(section["NAME"]), json.loads(options)


def _with_image_sizes(architecture: str, options: Mapping[str, object]) -> dict[str, object]:
    """Add ``dynamic_img_size`` to the options of a network that has it."""
    with torch.device("meta"):
        net = create_network(architecture, options)
    dynamic = "dynamic_img_size" in inspect.signature(type(net).__init__).parameters
    return {**({"dynamic_img_size": True} if dynamic else {}), **options}


def _stage_names(net: nn.Module) -> dict[str, int]:
    """Return the names of the stages, and their indices in timm's ``feature_info``."""
    stages = list(getattr(net, "feature_info", None) or [])
    if not stages or not hasattr(net, "forward_intermediates"):
        return {}
    names = {f"stage{i + 1}": i for i in range(len(stages))}
    reductions = [stage["reduction"] for stage in stages]
    if reductions == sorted(set(reductions)):
        names |= {_BY_REDUCTION[r]: i for i, r in enumerate(reductions) if r in _BY_REDUCTION}
    return names


def _has_fused_norm(net: nn.Module) -> bool:
    from timm.layers import BatchNormAct2d

    return any(isinstance(module, BatchNormAct2d) for module in net.modules())
