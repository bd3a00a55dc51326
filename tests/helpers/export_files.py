"""Small trunks and checkpoints for the export and detection tests."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from pirl_plugin.vissl.adapters.method import PIRLResNet

PREFIX = "_feature_blocks."


def small_trunk(depth=18, width=0.125, seed=0, **section):
    """A trunk in which every tensor is distinct, batch statistics included; VISSL's names."""
    section = {"DEPTH": depth, "WIDTH_MULTIPLIER": width, **section}
    torch.manual_seed(seed)
    state = PIRLResNet(SimpleNamespace(TRUNK={"PIRL_RESNET": section})).state_dict()
    for name, tensor in state.items():
        if tensor.ndim == 1:  # batch norm: positive, unlike the initial ones and zeros
            tensor.uniform_(0.5, 1.5)
        elif name.endswith("num_batches_tracked"):
            tensor.fill_(7)
    return dict(state)


def bare(trunk):
    """State under torchvision's names."""
    return {name.removeprefix(PREFIX): tensor for name, tensor in trunk.items()}


def weights(trunk):
    """State under torchvision's names, without batch-norm counters."""
    return {n: t for n, t in bare(trunk).items() if not n.endswith("num_batches_tracked")}


def prefixed(trunk, prefix):
    """State under torchvision's names with another prefix."""
    return {prefix + name: tensor for name, tensor in bare(trunk).items()}


def vissl_checkpoint(trunk):
    """A pre-training checkpoint as VISSL saves it, with heads, loss and optimizer state."""
    heads = {"0.clf.0.weight": torch.zeros(4, 8), "1.clf.0.weight": torch.zeros(4, 8)}
    momentum = {0: {"momentum_buffer": torch.zeros(3)}}
    return {
        "type": "consolidated",
        "phase_idx": 1,
        "loss": {"memory": torch.zeros(5, 4)},
        "classy_state_dict": {
            "base_model": {"model": {"trunk": trunk, "heads": heads}, "meta": {"trunk": {}}},
            "optimizer": {"optim": {"state": momentum, "param_groups": [{"lr": 0.1}]}},
        },
    }


def same(first, second):
    """Whether two dictionaries of tensors have identical names, types and bits."""
    return first.keys() == second.keys() and all(
        first[n].dtype == second[n].dtype and torch.equal(first[n], second[n]) for n in first
    )


def save(checkpoint, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, path, **options)
    return path
