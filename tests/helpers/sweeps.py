"""Files that finished VISSL runs leave."""

import json

import numpy as np
import yaml


def finish(folder, top1=None, tested=True):
    """Write VISSL's files for two epochs, or for a linear benchmark if ``top1`` is given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model_final_checkpoint_phase1.torch").touch()
    if top1 is not None:
        lines = [
            {"test_accuracy_list_meter": {"top_1": {"res5": 1.0}}, "train_phase_idx": 0},
            {"train_accuracy_list_meter": {"top_1": {"res5": 99.0}}, "train_phase_idx": 1},
            {"test_accuracy_list_meter": {"top_1": top1}, "train_phase_idx": 1},
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
