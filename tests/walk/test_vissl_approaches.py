"""VISSL's own approaches on today's Python, on a CPU: train, resume, evaluate by kNN.

A small network replaces ResNet-50. Images, views, losses and optimizers are from VISSL's configs.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pirl_plugin.views.jigsaw import PermutationSet
from tests.helpers.host_runs import run
from tests.helpers.programs import run_python

pytestmark = pytest.mark.walk

WIDTH = 128  # width of the network's features
RESNET = [
    "config.MODEL.TRUNK.NAME=pirl_resnet",
    "+config.MODEL.TRUNK.PIRL_RESNET={DEPTH: 10, WIDTH_MULTIPLIER: 0.25}",
]
VIT = [
    f"config.MODEL.TRUNK.VISION_TRANSFORMERS.{key}={value}"
    for key, value in {"NUM_LAYERS": 2, "NUM_HEADS": 2, "HIDDEN_DIM": WIDTH, "MLP_DIM": 256}.items()
]


def head(*layers: str) -> str:
    return f"config.MODEL.HEAD.PARAMS=[{', '.join(layers)}]"


def mlp(*dims: int, more: str = "") -> str:
    return f"[mlp, {{dims: {list(dims)}{more}}}]"


# Shorter runs refuse rates that change at fixed epochs.
COSINE = "+config/pirl/epochs=cosine"
PROJECTION = head(mlp(WIDTH, WIDTH, more=", use_relu: true"), mlp(WIDTH, 128))
PROTOTYPES = f"[swav_head, {{dims: [{WIDTH}, {WIDTH}, 128], use_bn: true, num_clusters: [30]}}]"
DINO = (
    f"[swav_head, {{use_weight_norm_prototypes: true, dims: [{WIDTH}, {WIDTH}, 64], use_bn: false, "
    f"return_embeddings: false, activation_name: GELU, num_clusters: [50]}}]"
)
TOWERS = "[siamese_concat_view, {num_towers: 9}]"
FEW = "config.LOSS.nce_loss_with_memory.negative_sampling_params.num_negatives=8"
# Name -> VISSL config, network, overrides.
APPROACHES: dict[str, tuple[str, list[str], list[str]]] = {
    "SimCLR": ("simclr/simclr_8node_resnet", RESNET, [PROJECTION]),
    "SimCLR with LARC": (
        "simclr/simclr_8node_resnet",
        RESNET,
        [PROJECTION, "config.OPTIMIZER.name=sgd_fsdp", "config.OPTIMIZER.use_larc=true"],
    ),
    "SwAV": ("swav/swav_8node_resnet", RESNET, [head(PROTOTYPES)]),
    "MoCo": (
        "moco/moco_1node_resnet",
        RESNET,
        [PROJECTION, COSINE, "config.LOSS.moco_loss.queue_size=64"],
    ),
    "Barlow Twins": (
        "barlow_twins/barlow_twins_4node_resnet",
        RESNET,
        [PROJECTION, "config.LOSS.barlow_twins_loss.embedding_dim=128"],
    ),
    "DINO": ("dino/dino_16gpus_deits16", VIT, [head(DINO)]),
    "PIRL of VISSL": (
        "pirl/pirl_jigsaw_4node_resnet50",
        RESNET,
        [head(f"[{mlp(WIDTH, 128)}, {TOWERS}, {mlp(9 * 128, 128)}]", f"[{mlp(WIDTH, 128)}]"), FEW],
    ),
    "NPID": ("npid/npid_8gpu_resnet", RESNET, [head(mlp(WIDTH, 128)), FEW, COSINE]),
    "NPID++": ("npid/npid++_4nodes_resnet", RESNET, [head(mlp(WIDTH, 128)), FEW]),
    "RotNet": ("rotnet/rotnet_8gpu_resnet", RESNET, [head(mlp(WIDTH, 4)), COSINE]),
    "Jigsaw": (
        "jigsaw/jigsaw_8gpu_resnet",
        RESNET,
        [head(mlp(WIDTH, 32, more=", use_bn: true"), TOWERS, mlp(9 * 32, 100)), COSINE],
    ),
    "supervised": (
        "supervised/supervised_8gpu_resnet",
        RESNET,
        [head(mlp(WIDTH, 2)), COSINE, "config.METERS.accuracy_list_meter.topk_values=[1]"],
    ),
    "DeiT": (
        "vision_transformer/supervised/16gpu_deit_b_example",
        VIT,
        [
            head(mlp(WIDTH, 2)),
            "config.METERS.accuracy_list_meter.topk_values=[1]",
            "config.DATA.TRAIN.COLLATE_FUNCTION_PARAMS.num_classes=2",
        ],
    ),
}


def jigsaw(permutations: Path) -> str:
    """Return VISSL's jigsaw transforms with a local permutation file."""
    return (
        "config.DATA.TRAIN.TRANSFORMS=[{name: Resize, size: 256}, {name: RandomCrop, size: 255}, "
        "{name: ToTensor}, {name: ImgPatchesFromTensor, num_patches: 9, patch_jitter: 21}, "
        f"{{name: ShuffleImgPatches, perm_file: {permutations}}}]"
    )


def train(name: str, data: Path, out: Path, *more: str) -> str:
    """Train two epochs of two batches, or the remaining ones; return VISSL's log."""
    config, network, overrides = APPROACHES[name]
    return run(
        f"config=pretrain/{config}",
        "+config/pirl/machines=vissl_cpu",
        f"config.DATA.TRAIN.DATA_PATHS=[{data / 'train'}]",
        f"config.DATA.TEST.DATA_PATHS=[{data / 'val'}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8",
        "config.DATA.TRAIN.DATA_LIMIT=16",
        "config.DATA.NUM_DATALOADER_WORKERS=0",
        "config.OPTIMIZER.num_epochs=2",
        "config.CHECKPOINT.CHECKPOINT_FREQUENCY=1",
        "config.LOG_FREQUENCY=1",
        f"config.CHECKPOINT.DIR={out}",
        *network,
        *overrides,
        *more,
    ).stdout  # type: ignore[no-any-return]


def losses(out: Path) -> dict[int, float]:
    lines = (out / "stdout.json").read_text().splitlines()
    return {line["iter"]: line["loss"] for line in map(json.loads, lines) if "loss" in line}


@pytest.mark.parametrize("name", APPROACHES)
def test_approach__trains_resumes_and_checkpoint_is_read(name, image_folder, tmp_path):
    out = tmp_path / "run"
    more = []
    if name == "Jigsaw":
        np.save(tmp_path / "permutations.npy", PermutationSet(100).orders)
        more = [jigsaw(tmp_path / "permutations.npy")]
    train(name, image_folder, out, *more)
    whole = losses(out)
    assert sorted(whole) == [0, 1, 2, 3]
    assert all(map(math.isfinite, whole.values()))

    # As if the run had been killed in the second epoch.
    for file in (*out.glob("model_final*"), out / "checkpoint.torch", out / "stdout.json"):
        file.unlink()
    (out / "checkpoint.torch").symlink_to("model_phase0.torch")
    assert f"Resume from file: {out / 'model_phase0.torch'}" in train(
        name, image_folder, out, *more
    )
    assert sorted(losses(out)) == [2, 3]

    if name in ("DINO", "DeiT"):  # pirl-plugin does not read VISSL's vision transformers
        return
    command = ["knn", "--checkpoint", out / "checkpoint.torch", "--data", image_folder]
    results = tmp_path / "knn"
    run_python("-m", "pirl_plugin", *command, "--size", "32", "--out", results)
    measured = json.loads((results / "results.json").read_text())
    assert measured["test_images"] == 8
    assert 0 <= measured["knn_top1"] <= 100
