"""What the host leaves of the runs of a sweep, and the commands that a sweep prints."""

import json
import zipfile

import numpy as np
import pytest
import yaml

from pirl_plugin.quickstart import launchers

# Sec. 4 of the paper.
VALUES = {
    "lambda": {"PIRL": [0, 0.25, 0.5, 0.75, 1]},
    "permutations": {
        "PIRL": [1, 10, 100, 1000, 10000, 362880],
        "Jigsaw": [10, 100, 1000, 10000],
    },
    "negatives": {"PIRL": [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]},
}


def finish(folder, top1=None, tested=True):
    """What the host leaves of two epochs; of a linear benchmark where ``top1`` is given."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "model_final_checkpoint_phase1.torch", "w") as file:
        file.writestr("data.pkl", "weights")
    if top1 is not None:
        lines = [
            {"test_accuracy_list_meter": {"top_1": {"res5": 1.0}}, "train_phase_idx": 0},
            {"train_accuracy_list_meter": {"top_1": {"res5": 99.0}}, "train_phase_idx": 1},
            {"test_accuracy_list_meter": {"top_1": top1}, "train_phase_idx": 1},
        ]
        lines = lines if tested else lines[:-1]
        (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def finish_svm(folder, mean_ap):
    """What the host leaves of the SVMs of one layer."""
    (folder / "res5").mkdir(parents=True)
    np.save(folder / "res5" / "test_ap.npy", np.full((20, 1), mean_ap / 100))
    settings = {"LINEAR_EVAL_FEAT_POOL_OPS_MAP": [["res5", ["Identity", []]]]}
    config = {"MODEL": {"FEATURE_EVAL_SETTINGS": settings}}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))


@pytest.fixture
def host(monkeypatch):
    """In place of the host: notes the folders of the runs, leaves what it would, fails at will."""

    class Host:
        def __init__(self):
            self.runs = []
            self.failing = ()

        def __call__(self, overrides, folder, title, threads, held, tool):
            name = f"{folder.parent.name}/{folder.name}"
            self.runs.append(name)
            if name in self.failing:
                raise SystemExit(f"pirl_plugin: {title} failed with exit status -9; the end of …")
            assert (tool == "train_svm.py") == (folder.name == "voc07")
            if tool is not None:
                finish_svm(folder, 71.0)
                return
            finish(folder, {"res4": 30.0, "res5": 40.0} if folder.name == "linear" else None)

    host = Host()
    monkeypatch.setattr(launchers, "run_host", host)
    return host


@pytest.fixture
def voc07(tmp_path):
    (tmp_path / "VOC2007" / "ImageSets" / "Main").mkdir(parents=True)
    return tmp_path / "VOC2007"
