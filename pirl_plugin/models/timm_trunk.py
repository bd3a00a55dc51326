"""Any network of timm as a trunk: its features by the names that the benchmarks use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pirl_plugin.checkpoints.timm_networks import create_network, network_width
from pirl_plugin.checkpoints.timm_trunk import describe
from pirl_plugin.checkpoints.trunk import DESCRIPTION

# Pixels of the image for one of the feature map, as timm states it -> VISSL's name of that feature.
_BY_REDUCTION = {2: "conv1", 4: "res2", 8: "res3", 16: "res4", 32: "res5"}
_POOLED = ("flatten", "res5avg")


class TimmTrunk(nn.Module):
    """A network of timm without its classifier.

    Features: ``flatten`` ``(B, D)`` and ``res5avg`` ``(B, D, 1, 1)``, what timm's classifier would
    take; ``stage1``, ``stage2``, … as timm's ``feature_info`` lists them, ``(B, C, h, w)``; and, of
    networks whose resolution halves from each to the next, ``conv1``, ``res2``, … ``res5``.

    Vision transformers take images of any size that their patches divide: their position
    embeddings are interpolated (timm's ``dynamic_img_size``), unless ``options`` says otherwise.

    Args:
        architecture: timm's name, such as ``vit_tiny_patch16_224``.
        options: keyword arguments of ``timm.create_model``.

    Raises:
        TimmMissingError: timm is not installed.
        ValueError: timm has no network of that name, or it does not take an option.
    """

    def __init__(self, architecture: str, options: Mapping[str, object] | None = None) -> None:
        super().__init__()
        options = with_image_sizes(architecture, options or {})
        self.net: Any = create_network(architecture, options)
        self.architecture = architecture
        # Tells an export, and kNN, which network the tensors of a checkpoint are of.
        self.register_buffer(DESCRIPTION, describe(architecture, options))
        self.width = network_width(self.net)
        self._stages = _stage_names(self.net)
        self._fused_norm = _has_fused_norm(self.net)

    def forward(self, images: Tensor, out_feat_keys: list[str] | None = None) -> list[Tensor]:
        """Features of the asked-for layers.

        Args:
            images: ``(B, 3, H, W)`` float, normalised.
            out_feat_keys: names of features; by default ``flatten``.

        Returns:
            One tensor a name, in the order of the names.

        Raises:
            ValueError: an unknown name; or activations that a conversion to SyncBatchNorm removed.
        """
        keys = out_feat_keys or ["flatten"]
        for key in keys:
            if key not in self._stages and key not in _POOLED:
                raise ValueError(
                    f"feature '{key}' of timm's {self.architecture}: expected one of "
                    f"{', '.join([*_POOLED, *self._stages])}; name one of these"
                )
        self._check_norms()
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

    def _check_norms(self) -> None:
        if self._fused_norm and not _has_fused_norm(self.net):
            raise ValueError(
                f"config.MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN = True: timm's "
                f"{self.architecture} has activations inside its batch norms, which the conversion "
                f"removes; set it to False"
            )


def with_image_sizes(architecture: str, options: Mapping[str, object]) -> dict[str, object]:
    """The options, with ``dynamic_img_size`` where the network has it."""
    if "dynamic_img_size" in options:
        return dict(options)
    with torch.device("meta"):
        net = create_network(architecture, options)
    parameters = inspect.signature(type(net).__init__).parameters
    dynamic = {"dynamic_img_size": True} if "dynamic_img_size" in parameters else {}
    return {**options, **dynamic}


def _stage_names(net: nn.Module) -> dict[str, int]:
    """Names of the stages, and their indices in timm's ``feature_info``."""
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


def read_timm_section(section: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Name and options of the network that a ``MODEL.TRUNK.PIRL_TIMM`` section asks for.

    Raises:
        ValueError: an unknown key, or no name.
    """
    given = dict(section)
    name, options = given.pop("NAME", None), given.pop("OPTIONS", None)
    if given or not name:
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM = {dict(section)}: expected NAME, a network of timm, and "
            f"OPTIONS, keyword arguments of timm.create_model or nothing; write it as "
            f"{{NAME: resnet50, OPTIONS: {{}}}}"
        )
    return str(name), _plain(options or {})


def _plain(value: object) -> Any:
    """Lists and dictionaries of Python, of what a configuration's classes hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
