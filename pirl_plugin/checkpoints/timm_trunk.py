"""The trunk ``pirl_timm`` in a checkpoint: any network of timm, named by a tensor beside it.

A state dict holds tensors alone, so the network's name and options are a tensor too: JSON in UTF-8,
padded with spaces. The network's own tensors are under ``net.``, by timm's names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from pirl_plugin.checkpoints.compare import COUNTER, compare
from pirl_plugin.checkpoints.trunk import CHOOSE, Trunk, dictionaries, find_trunk
from pirl_plugin.models.timm_trunk import DESCRIPTION, create_network, read_description


@dataclass(frozen=True)
class TimmTensors:
    """A network of timm without its classifier.

    Attributes:
        tensors: by timm's names; contiguous, on the CPU.
        architecture: timm's name of the network.
        options: keyword arguments of ``timm.create_model`` beside ``num_classes=0``.
        found_at: keys and prefix it was found under.
        ignored: names of tensors beside it.
    """

    tensors: dict[str, Tensor]
    architecture: str
    options: dict[str, object]
    found_at: str
    ignored: tuple[str, ...]

    @property
    def title(self) -> str:
        """Such as ``timm's vit_tiny_patch16_224 (img_size=48)``."""
        return timm_title(self.architecture, self.options)

    def weights(self) -> dict[str, Tensor]:
        """All tensors but batch norms' counters."""
        return {n: t for n, t in self.tensors.items() if not n.endswith(COUNTER)}


def timm_title(architecture: str, options: Mapping[str, object]) -> str:
    """A network of timm in words."""
    given = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"timm's {architecture}{f' ({given})' if given else ''}"


def find_any_trunk(
    checkpoint: Mapping[str, object], name: str, at: str | None = None
) -> Trunk | TimmTensors:
    """The trunk of a checkpoint: a ResNet, or the network of timm that its description names.

    Networks of timm that are torchvision's ResNets by another name count as ResNets.

    Args:
        checkpoint: nested dictionaries; arrays count as tensors.
        name: what errors call the checkpoint.
        at: keys and prefix of the trunk to take where there are several.

    Raises:
        ValueError: no trunk, several, or one that is not whole.
    """
    described = [
        (keys + full.removesuffix(DESCRIPTION), full, tensors)
        for keys, tensors in dictionaries(checkpoint)
        for full in tensors
        if full.endswith(DESCRIPTION)
    ]
    if at is not None:
        described = [found for found in described if found[0].strip(".") == at.strip(".")]
    if not described:
        return find_trunk(checkpoint, name, at)
    if len(described) > 1:
        places = ", ".join(where for where, _, _ in described)
        raise ValueError(f"{name} holds {len(described)} trunks, at {places}: {CHOOSE}")
    ((where, full, tensors),) = described
    architecture, options = read_description(tensors[full])
    if re.fullmatch(r"resnet(18|34|50|101|152)", architecture) and not options:
        return find_trunk(checkpoint, name, f"{where}net.")
    inside = f"{full.removesuffix(DESCRIPTION)}net."
    ours = {n.removeprefix(inside): t for n, t in tensors.items() if n.startswith(inside)}
    strange = [n for n, t in ours.items() if not bool(t.isfinite().all())]
    if strange:
        raise ValueError(f"{name} has values that are not finite, in {strange[0]}")
    ignored = [n for n in tensors if not n.startswith(inside) and n != full]
    return TimmTensors(_whole(ours), architecture, options, where, tuple(ignored))


def build_network(found: TimmTensors) -> nn.Module:
    """Timm's network with the tensors of a checkpoint.

    Raises:
        ModuleNotFoundError: timm is not installed.
        ValueError: timm does not have the network, or the tensors do not fit it.
    """
    net = create_network(found.architecture, found.options)
    mismatch = compare(net.state_dict(), found.tensors)
    if mismatch:
        raise ValueError(f"the trunk at '{found.found_at}' is not {found.title}: {mismatch}")
    net.load_state_dict(found.tensors, strict=False)
    return net


def _whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
