"""Fine-tune the networks from ``peers.py`` on few labels.

    python extra_scripts/claims/few_labels.py --data DIR --peers OUT --out OUT2

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``, and ``OUT`` is the folder from ``peers.py``.
For each seed, ``pirl-plugin finetune`` trains PIRL's network, NPID's, and the same network from
random weights, on the same images. Finished runs are recorded in ``few_labels.json``; run the same
command again to continue. ``peers_report.py`` makes the table and the figure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from pirl_plugin.evaluation.finished_runs import final_accuracy
from pirl_plugin.images.opening import open_source
from pirl_plugin.system.arguments import Parser
from pirl_plugin.system.files import write_json
from pirl_plugin.system.processes import own_command

STARTS = ("pirl_jigsaw", "npid", "random")
# Fraction of the labels → epochs: few images need many epochs.
EPOCHS = {0.01: 100, 0.05: 60, 0.1: 40, 1.0: 10}
IMAGE_SIZE = 64  # as in peers.py


def trunk_file(peers: Path, method: str, seed: int) -> Path:
    """Return the network from a method's run at equal images."""
    runs = json.loads((peers / "peers.json").read_text("utf-8"))["runs"]
    (run,) = (
        row
        for row in runs
        if row["method"] == method and row["seed"] == seed and row["compared_at"] == "equal images"
    )
    return peers / "trunks" / run["trunk"]


def command(
    options: argparse.Namespace, start: str, seed: int, fraction: float, out: Path
) -> list[str]:
    """Return the command for a fine-tuning run."""
    # From random weights, the file only determines the network.
    trunk = trunk_file(options.peers, "pirl_jigsaw" if start == "random" else start, seed)
    epochs = EPOCHS[fraction]
    words = own_command("finetune", "--checkpoint", str(trunk))
    words += ["--data", str(options.data), "--size", str(IMAGE_SIZE), "--out", str(out)]
    if fraction < 1:
        num_images = len(open_source(options.data / "train"))
        limit = "config.DATA.TRAIN.DATA_LIMIT"
        words += [f"{limit}={round(fraction * num_images)}"]
        words += [f"{limit}_SAMPLING.IS_BALANCED=true", f"{limit}_SAMPLING.SEED={seed}"]
    if start == "random":
        words += ["config.MODEL.WEIGHTS_INIT.PARAMS_FILE="]
    words += [f"config.OPTIMIZER.num_epochs={epochs}", f"config.TEST_EVERY_NUM_EPOCH={epochs}"]
    return [*words, f"config.SEED_VALUE={seed}"]


def main() -> None:
    """Run whatever is missing in ``few_labels.json``."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    parser.add_argument("--peers", type=Path, required=True, help="output folder of peers.py")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--fractions", type=float, nargs="+", choices=EPOCHS, default=list(EPOCHS))
    options = parser.parse_args()
    file = options.out / "few_labels.json"
    runs: list[dict[str, Any]] = []
    if file.is_file():
        runs = json.loads(file.read_text("utf-8"))
    for fraction, seed, start in itertools.product(options.fractions, options.seeds, STARTS):
        key = {"start": start, "seed": seed, "fraction": fraction}
        if any(key.items() <= run.items() for run in runs):
            continue
        out = options.out / f"{start}_{fraction}_{seed}"
        subprocess.run(command(options, start, seed, fraction, out), check=True)
        (top1,) = final_accuracy(out).values()
        runs.append({**key, "epochs": EPOCHS[fraction], "top1": round(top1, 2)})
        write_json(file, runs)
        print(json.dumps(runs[-1]), flush=True)


if __name__ == "__main__":
    main()
