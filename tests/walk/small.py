"""Run a documented command with additional arguments, so that it ends in seconds on tiny data.

``python -m tests.walk.small PROGRAM WORD …`` runs ``PROGRAM WORD …`` as documented, plus arguments
from this file. A number of GPUs, which this machine may lack, becomes a CPU or two processes.
"""

from __future__ import annotations

import os
import re
import sys

EPOCH = ["config.OPTIMIZER.num_epochs=1", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8"]
VIEWS = [
    f"config.DATA.TRAIN.VIEWS.{size}"
    for size in ("image_size=64", "patches_crop_size=96", "patch_size=24")
]
NEGATIVES = ["config.LOSS.pirl_loss.num_negatives=16"]
LINEAR = ["config.OPTIMIZER.num_epochs=2", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8"]
COSTS = ["config.SVM.costs.costs_list=[1.0]", "config.SVM.dual=false"]
SMALL = ["--linear", "+config/pirl/machines=cpu", "+config/pirl/machines=cpu", *EPOCH]
SWEEP = ["--linear", LINEAR[0], "--linear", LINEAR[1], *SMALL, *VIEWS]
PEERS = ["--epochs", "1", "--seeds", "1", "--image-size", "48", "--batches", "4", "--rates", "0.03"]
QUICK = {  # command or script -> more words
    "extra_scripts/paper/sweep.py lambda": ["--values", "0.5", *SWEEP],
    "extra_scripts/paper/sweep.py permutations": ["--values", "10", "--linear", COSTS[0],
                                                  "--linear", COSTS[1], *SMALL],
    "extra_scripts/paper/sweep.py negatives": ["--values", "8", *SWEEP],
    "extra_scripts/paper/invariance.py": ["--images", "8"],
    "extra_scripts/benchmark/pipeline.py": ["--images", "4", "--rounds", "1"],
    "extra_scripts/benchmark/loss.py": ["--rows", "4000", "--negatives", "100", "--rounds", "1"],
    "extra_scripts/benchmark/step.py": ["--images", "4", "--depth", "18", "--precision", "float32",
                                        "--batch", "4", "--negatives", "100", "--rows", "4000",
                                        "--steps", "1"],
    "extra_scripts/benchmark/startup.py": ["--rows", "4000", "--rounds", "1"],
    "extra_scripts/claims/run.py": ["--methods", "random", "pirl_jigsaw", "--sweeps", "--seeds",
                                    "1", "--images-seen", "32"],
    "extra_scripts/claims/peers.py": ["--methods", "pirl_jigsaw", "npid", *PEERS],
    "extra_scripts/claims/few_labels.py": ["--seeds", "1", "--fractions", "1.0"],
    "extra_scripts/claims/recipes.py": ["--recipes", "rate 0.03", *PEERS[:6]],
    "docs/examples/ddp.py": ["--epochs", "1", "--batch-size", "4"],
    "docs/examples/lightning_module.py": ["--epochs", "1", "--batch-size", "4"],
    "extra_scripts/quickstart.sh": ["--epochs", "1"],
    "extra_scripts/run_tests.sh": ["tests/models/test_head.py"],  # not all, this one included
    "pirl-plugin finetune": EPOCH,
}  # fmt: skip


def smaller(words: list[str]) -> list[str]:
    """Return the words of a command that ends in seconds.

    Example:
        >>> smaller(["torchrun", "--nproc-per-node", "8", "docs/examples/ddp.py", "photos"])[2:4]
        ['2', 'docs/examples/ddp.py']
    """
    if "--nproc-per-node" in words:
        words[words.index("--nproc-per-node") + 1] = "2"
    config = next((word for word in words if word.startswith("config=")), None)
    if config is not None:
        return smaller_run(words, config)
    text = " ".join(words)
    for beginning, more in QUICK.items():
        if beginning in text:
            words = [*words, *more]
    return words


def smaller_run(words: list[str], config: str) -> list[str]:
    """Return a one-epoch VISSL run with tiny batches on a CPU."""
    words = [word for word in words if not re.match(r"config\.SLURM|\+config/pirl/machines=", word)]
    if "/pirl/" not in config:  # a VISSL approach
        return [*words, "+config/pirl/machines=vissl_cpu", *EPOCH]
    words.append("+config/pirl/machines=cpu")
    if "train_svm" in " ".join(words):
        return [*words, *COSTS]
    if "/benchmark/" in config or config.startswith("config=benchmark/"):
        return [*words, *LINEAR, "config.MODEL.HEAD.NUM_CLASSES=10"]  # not iNaturalist's 8,142
    if not any(".VIEWS." in word for word in words):
        has_patches = "pirl/rotation_" not in config or "rotation_jigsaw" in config
        words += VIEWS if has_patches else VIEWS[:1]
    if "baseline" not in config:
        words += NEGATIVES
    return [*words, *EPOCH]


if __name__ == "__main__":
    program, *rest = smaller(sys.argv[1:])
    os.execvp(program, [program, *rest])
