"""Files that finished VISSL runs leave."""

import json

import numpy as np
import yaml


def finish(folder, top1=None, tested=True, epochs=2):
    """Write VISSL's files for a run, or for a linear benchmark if ``top1`` is given.

    Top-5 is 5 points higher than top-1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    last = epochs - 1
    (folder / f"model_final_checkpoint_phase{last}.torch").touch()
    if top1 is not None:
        meter = {"top_1": top1, "top_5": {layer: value + 5 for layer, value in top1.items()}}
        lines = [
            {"test_accuracy_list_meter": {"top_1": {"res5": 1.0}}, "train_phase_idx": last - 1},
            {"train_accuracy_list_meter": {"top_1": {"res5": 99.0}}, "train_phase_idx": last},
            {"test_accuracy_list_meter": meter, "train_phase_idx": last},
        ]
        lines = lines if tested else lines[:-1]
        (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def finish_svm(folder, mean_ap):
    """Write VISSL's files for the SVMs on one layer."""
    (folder / "res5").mkdir(parents=True)
    np.save(folder / "res5" / "test_ap.npy", np.full((20, 1), mean_ap / 100))
    settings = {"LINEAR_EVAL_FEAT_POOL_OPS_MAP": [["res5", ["Identity", []]]]}
    config = {"MODEL": {"FEATURE_EVAL_SETTINGS": settings}}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))
