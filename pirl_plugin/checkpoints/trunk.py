"""Find the trunk in a checkpoint of any layout, and check that it is complete.

A checkpoint is flattened to tensors by dotted names. A trunk is the tensors with one prefix, such
as ``classy_state_dict.base_model.model.trunk._feature_blocks.`` in VISSL's layout.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from pirl_plugin.models.preprocessing import Preprocessing
from pirl_plugin.models.resnet import STAGES, ResNetTrunk, WideResNet, resnet_title
from pirl_plugin.models.timm_trunk import (
    DESCRIPTION,
    TimmTrunk,
    create_network,
    describe,
    resolve_source,
    timm_title,
)
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.system.failures import Refused

COUNTER = "num_batches_tracked"
"""Unused buffer of batch norm; files of PyTorch < 0.4.1 and of Caffe2 do not have it."""

# How programs name the parts of a ResNet: their name -> torchvision's. In all of them, the names
# inside a part are torchvision's.
_OF_TORCHVISION = {name: name for name in ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")}
# lightly: an nn.Sequential of the children; its 2 (ReLU) and 3 (pooling) have no tensors.
_OF_LIGHTLY = {
    "0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4",
}  # fmt: skip
# What is before one of these convolutions is the prefix of a ResNet.
_MARK = re.compile(r"(?P<prefix>(?:.*\.)?)(?P<part>layer[14]|[47])\.0\.conv1\.weight")
# Wrappers of torch put these parts into names, also in the middle of them.
_WRAPPERS = re.compile(r"\b(?:_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.")
# If a file holds several trunks, the first of these is taken, as in the papers' evaluation.
_PREFERRED = (
    "classy_state_dict.base_model.model.trunk.",  # VISSL: not the momentum encoder in its loss
    "encoder_q.",  # MoCo: not the key encoder
    "teacher.",  # DINO: not the student
    "state_dict_ema.",  # timm: the averaged weights, as timm itself takes
)


@dataclass(frozen=True)
class Trunk:
    """A complete trunk: a ResNet, or a network of timm.

    Attributes:
        tensors: by torchvision's or timm's names, without a classifier; contiguous, on the CPU.
        prefix: of the tensors' names in the checkpoint.
        depth: of a ResNet, as ``width`` and ``small_stem``: see :class:`pirl_plugin.WideResNet`.
        timm: timm's name of the network; empty for a ResNet.
        options: keyword arguments of ``timm.create_model``.
        preprocessing: of the images in its training.
    """

    tensors: dict[str, Tensor] = field(repr=False)
    prefix: str = ""
    depth: int = 50
    width: float = 1
    small_stem: bool = False
    timm: str = ""
    options: dict[str, object] = field(default_factory=dict)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @property
    def title(self) -> str:
        """A title, such as ``ResNet-10 of width 0.5`` or ``timm's vit_tiny (img_size=48)``."""
        if self.timm:
            return timm_title(self.timm, self.options)
        return resnet_title(self.depth, self.width, self.small_stem)

    @property
    def is_usual(self) -> bool:
        """Whether torchvision and timm have a constructor for this ResNet."""
        return not self.timm and self.width == 1 and not self.small_stem and self.depth != 10

    def weights(self) -> dict[str, Tensor]:
        """Return all tensors except batch norm's counters: 265 for ResNet-50."""
        return {name: tensor for name, tensor in self.tensors.items() if not name.endswith(COUNTER)}

    def vissl_state(self) -> dict[str, Tensor]:
        """Return tensors by the names of VISSL's ResNet, of ``pirl_resnet`` or of ``pirl_timm``."""
        if self.timm:
            named = {f"net.{name}": tensor for name, tensor in self.tensors.items()}
            return {DESCRIPTION: describe(self.timm, self.options), **named}
        return {f"_feature_blocks.{name}": tensor for name, tensor in self.tensors.items()}

    def build(self) -> AnyTrunk:
        """Return the network, in evaluation mode: it maps normalised images to features."""
        network: AnyTrunk
        if self.timm:
            network = TimmTrunk(self.timm, self.options)
            layers = network.net
        else:
            network = ResNetTrunk(self.depth, self.width, self.small_stem)
            layers = network._feature_blocks
        layers.load_state_dict(self.tensors, strict=False)  # counters may be missing
        network.preprocessing = self.preprocessing
        return network.eval()


def find_resnet(tensors: Mapping[str, Tensor], name: str, prefix: str | None) -> Trunk:
    """Find the ResNet of a checkpoint.

    Args:
        tensors: of :func:`flatten`.
        name: of the file, for errors.
        prefix: prefix of the trunk's tensors, or its end; None: there is one trunk.

    Raises:
        Refused: there is no ResNet, there are several, or it is incomplete.
    """
    part_names_at: dict[str, dict[str, str]] = {}  # prefix of a ResNet → names of its parts
    for full_name in tensors:
        if mark := _MARK.fullmatch(full_name):
            is_lightly = mark["part"].isdecimal()
            part_names_at[mark["prefix"]] = _OF_LIGHTLY if is_lightly else _OF_TORCHVISION
    if not part_names_at:
        raise Refused(
            f"{name} holds no ResNet: no tensor is named like layer1.0.conv1.weight. For another "
            f"network, such as a ViT, give its timm name."
        )
    trunk_prefix = choose_prefix(list(part_names_at), name, prefix)
    part_names = part_names_at[trunk_prefix]
    full_names = {}  # torchvision's name → name in the file
    num_blocks: Counter[str] = Counter()  # of each stage
    for full_name in tensors:
        part, _, rest = full_name.removeprefix(trunk_prefix).partition(".")
        if full_name.startswith(trunk_prefix) and part in part_names:
            full_names[f"{part_names[part]}.{rest}"] = full_name
            num_blocks[part_names[part]] += rest.endswith(".conv1.weight")

    # The network: the depth with the nearest numbers of blocks; width and stem by conv1's shape.
    block = Bottleneck if "layer1.0.conv3.weight" in full_names else BasicBlock
    distances: Counter[int] = Counter()  # from the numbers of blocks of each depth
    for depth, (its_block, stages) in STAGES.items():
        if its_block is block:
            for i, count in enumerate(stages, 1):
                distances[depth] += abs(num_blocks[f"layer{i}"] - count)
    depth = min(distances, key=distances.__getitem__)
    stem = tensors.get(full_names.get("conv1.weight", ""), torch.empty(64, 3, 7, 7))
    width = stem.shape[0] / 64
    small_stem = tuple(stem.shape[2:]) == (3, 3)
    with torch.device("meta"):
        expected = WideResNet(depth, width, small_stem).state_dict()
    title = resnet_title(depth, width, small_stem)
    remedy = "If it is another network, give its timm name."
    state = _whole(tensors, trunk_prefix, full_names, expected, name, title, remedy)
    return Trunk(state, trunk_prefix, depth, width, small_stem)


def find_timm_network(
    tensors: Mapping[str, Tensor],
    name: str,
    prefix: str | None,
    timm: str,
    options: Mapping[str, object],
) -> Trunk:
    """Find the network of timm of a checkpoint.

    Args:
        tensors: of :func:`flatten`.
        name: of the file, for errors.
        prefix: prefix of the trunk's tensors, or its end; None: there is one trunk.
        timm: timm's name of the network.
        options: keyword arguments of ``timm.create_model``.

    Raises:
        Refused: there is no such network, there are several, or it is not whole; or timm is not
            installed.
    """
    source = timm  # perhaps an address, which a checkpoint does not name
    timm, described = resolve_source(source)
    options = {**described, **options}
    with torch.device("meta"):
        network: Any = create_network(source, options)
    expected = network.state_dict()
    prefixes = _prefixes_of_network(tensors, expected)
    if not prefixes:
        raise Refused(
            f"{name} holds no {timm}: most of its {len(expected)} tensors, such as "
            f"{next(iter(expected))}, are missing. Give the timm name of the network in this file."
        )
    trunk_prefix = choose_prefix(prefixes, name, prefix)
    full_names = {key: trunk_prefix + key for key in expected if trunk_prefix + key in tensors}
    images = Preprocessing.from_timm(network.pretrained_cfg, timm)
    remedy = "Check the timm name and its options, such as img_size=384."
    title = timm_title(timm, options)
    return Trunk(
        _whole(tensors, trunk_prefix, full_names, expected, name, title, remedy),
        trunk_prefix,
        timm=timm,
        options=dict(options),
        preprocessing=images.of_timm_options(options),
    )


def _prefixes_of_network(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> list[str]:
    """Return the prefix of each whole network in a file; if none is whole, of the nearest ones.

    One tensor does not tell a network: the blocks of a ResNet have a ``conv1.weight`` too.

    Args:
        tensors: of the file.
        expected: of the network, by its own names.
    """
    same_name: Counter[str] = Counter()  # prefix → number of the network's tensors after it
    same_shape: Counter[str] = Counter()
    for full_name, tensor in tensors.items():
        for match in re.finditer(r"(?:^|(?<=\.))(?=.)", full_name):
            key = full_name[match.start() :]
            if key in expected and not key.endswith(COUNTER):
                prefix = full_name[: match.start()]
                same_name[prefix] += 1
                same_shape[prefix] += expected[key].shape == tensor.shape
    total = sum(not key.endswith(COUNTER) for key in expected)
    complete = [prefix for prefix, count in same_shape.items() if count == total]
    most = max(same_name.values(), default=0)
    if 2 * most < total:  # another network, which has some names in common
        return []
    return complete or [prefix for prefix, count in same_name.items() if count == most]


def flatten(node: Mapping[str, object], path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors and arrays of nested dictionaries, with their dotted names."""
    for key, value in node.items():
        if isinstance(value, nn.Module):  # only in files whose code was allowed to run
            value = value.state_dict()
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}{key}.")
        elif isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.ndim):
            yield _WRAPPERS.sub("", f"{path}{key}"), torch.as_tensor(value)


def choose_prefix(prefixes: Sequence[str], name: str, user_prefix: str | None) -> str:
    """Return the prefix of the trunk.

    Raises:
        ValueError: none is the user's; or there are several, and none is preferred.
    """
    matching = []
    for prefix in prefixes:
        ends_with_it = f".{prefix}".endswith(f".{(user_prefix or '').strip('.')}.")
        if user_prefix is None or prefix == user_prefix or ends_with_it:
            matching.append(prefix)
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(prefix or "the top" for prefix in prefixes)
    if not matching:
        raise Refused(f"{name} holds no network at {user_prefix}, but at {listed}.")
    for part in _PREFERRED:
        preferred = [prefix for prefix in matching if part in prefix]
        if len(preferred) == 1:
            logging.root.info(f"{name} holds networks at {listed}; using {preferred[0]}")
            return preferred[0]
    raise Refused(f"{name} holds {len(matching)} networks, at {listed}. Choose one by its prefix.")


def _whole(
    tensors: Mapping[str, Tensor],
    prefix: str,
    full_names: Mapping[str, str],
    expected: Mapping[str, Tensor],
    name: str,
    title: str,
    remedy: str,
) -> dict[str, Tensor]:
    """Return a trunk's tensors, contiguous, in the network's order, whatever the file's.

    So exported files of equal weights are equal. A warning names the file's other parts, such as
    ``fc``.

    Args:
        tensors: of the file.
        prefix: of the trunk.
        full_names: the network's name of a tensor → its name in the file.
        expected: the network's tensors.
        name: of the file.
        title: of the network, for the message.
        remedy: what the user can do about a mismatch, a sentence.

    Raises:
        Refused: tensors are missing, left over or of another shape, or values are not finite.
    """
    state = {}
    for key, full_name in full_names.items():
        state[key] = tensors[full_name]
    if mismatch := compare(expected, state):
        place = f" at {prefix}" if prefix else ""
        raise Refused(f"{name}{place} is not a complete {title}: {mismatch}. {remedy}")
    other_parts = set()
    for full_name in tensors.keys() - full_names.values():
        if full_name.startswith(prefix):
            part, _, _ = full_name.removeprefix(prefix).partition(".")
            other_parts.add(part)
    other_parts.discard(DESCRIPTION)
    if other_parts:
        logging.root.warning(f"{name}: ignored {truncate(sorted(other_parts))}")
    ordered = {}
    not_finite = []
    for key in expected:
        if key in state:
            ordered[key] = state[key].detach().contiguous()
            if not bool(ordered[key].isfinite().all()):
                not_finite.append(key)
    if not_finite:
        raise Refused(f"{name} has NaN or infinite values in {truncate(not_finite)}.")
    return ordered


def compare(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Compare tensors by name and shape. Counters of batch norm may be missing.

    Args:
        expected: name to tensor, whose values do not count.
        tensors: name to tensor.

    Returns:
        The differences in words; empty if there are none.

    Example:
        >>> import torch
        >>> net = {"conv.weight": torch.ones(2), "bn.bias": torch.ones(3)}
        >>> print(compare(net, {"conv.weight": torch.ones(4)}))
        1 of another shape: conv.weight (4,), expected (2,); 1 of 2 missing: bn.bias
    """
    other_shapes = []
    missing = []
    for name, value in expected.items():
        shape = tuple(value.shape)
        if name in tensors and tuple(tensors[name].shape) != shape:
            other_shapes.append(f"{name} {tuple(tensors[name].shape)}, expected {shape}")
        elif name not in tensors and not name.endswith(COUNTER):
            missing.append(name)
    left_over = []
    for name in tensors:
        if name not in expected:
            left_over.append(name)
    differences = []
    if other_shapes:
        differences.append(f"{len(other_shapes)} of another shape: {truncate(other_shapes)}")
    if missing:
        differences.append(f"{len(missing)} of {len(expected)} missing: {truncate(missing)}")
    if left_over:
        differences.append(f"{len(left_over)} left over: {truncate(left_over)}")
    return "; ".join(differences)


def truncate(names: Sequence[str], most: int = 4) -> str:
    """Join the names, or the first of them.

    >>> truncate(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
