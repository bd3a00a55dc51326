"""VISSL's SVMs on current NumPy."""

import numpy as np
import pytest


def test_average_precision__is_a_correct_number():
    from vissl.utils.svm_utils.evaluate import get_precision_recall

    # Ranked by score: hit, miss, hit, miss. Precision at the hits: 1, 2/3 → AP = (1 + 2/3) / 2
    targets, scores = np.array([1, -1, 1, -1]), np.array([0.9, 0.8, 0.7, 0.1])
    *_, average = get_precision_recall(targets, scores)
    assert isinstance(average, float)
    assert average == pytest.approx(5 / 6)


def test_low_shot__samples_k_positives_for_each_k(tmp_path):
    from extra_scripts.create_low_shot_samples import generate_low_shot_samples

    targets = np.zeros((40, 2), dtype=np.int32)
    targets[:20, 0] = targets[20:, 1] = 1
    generate_low_shot_samples("voc", targets, [1, 3], [1], str(tmp_path), "res5")
    for k in (1, 3):
        sample = np.load(tmp_path / f"res5_sample1_k{k}.npy")
        assert ((sample == 1).sum(axis=0) == k).all()
        assert ((sample == 0).sum(axis=0) == k).all()  # (classes − 1) · k


class Scores:
    """A classifier whose scores are the features."""

    def decision_function(self, features):
        return features[:, 0]


def test_low_shot__writes_mean_over_classes_per_cost(tmp_path, monkeypatch):
    from vissl.config import AttrDict
    from vissl.utils.svm_utils import svm_low_shot_trainer as module

    low_shot = {"dataset_name": "voc"}
    costs = {"costs_list": [0.1, 1.0], "base": -1.0, "power_range": [], "normalize": False}
    config = AttrDict({"low_shot": low_shot, "costs": costs, "normalize": False})
    trainer = module.SVMLowShotTrainer(config, "res5", str(tmp_path))
    trainer.costs_list = [0.1, 1.0]
    files = []
    monkeypatch.setattr(module, "load_file", lambda file: files.append(file) or Scores())
    # Class 0, ranked by score: hit, miss, hit, miss, AP = (1 + 2/3) / 2 = 5/6. Class 1: the image
    # with the best score is ignored (-1); miss, hit, miss, AP = 1/2.
    features = np.array([[0.9], [0.8], [0.7], [0.1]])
    targets = np.array([[1, -1], [0, 0], [1, 1], [0, 0]])
    trainer.cls_list, trainer.num_classes = [0, 1], 2
    trainer.test(features, targets, 3, 8)
    precision = np.load(tmp_path / "res5" / "test_ap_sample3_k8.npy")
    assert precision == pytest.approx(np.full((1, 2), (5 / 6 + 1 / 2) / 2))
    assert [file.rpartition("/")[2] for file in files] == [
        f"cls{number}_cost{cost}_sample3_k8.pickle" for cost in (0.1, 1.0) for number in (0, 1)
    ]
