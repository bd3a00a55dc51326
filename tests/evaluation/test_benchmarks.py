"""Each benchmark end to end, on generated images, with VISSL's own scripts."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

from pirl_plugin.evaluation.finished_runs import final_accuracy
from tests.helpers.host_runs import host_script, run
from tests.helpers.host_tools import (
    CPU,
    LINEAR,
    write_checkpoint,
    write_classes,
    write_voc,
)
from tests.walk import tiny

COSTS = [0.1, 1.0]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("trunk") / "resnet18.torch")


@pytest.fixture(scope="module")
def separable(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("separable"), {"train": 32, "val": 16}, True)


@pytest.fixture(scope="module")
def voc(tmp_path_factory):
    return write_voc(tmp_path_factory.mktemp("voc") / "VOC2007")


def on(folder, out, checkpoint, train="train", test="val"):
    return [
        f"config.DATA.TRAIN.DATA_PATHS=[{folder / train}]",
        f"config.DATA.TEST.DATA_PATHS=[{folder / test}]",
        f"config.CHECKPOINT.DIR={out}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={checkpoint}",
    ]


def short(epochs=2, rate=1.0):
    """A few epochs on a few images need a higher rate than 0.01 per 256 images."""
    return [
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.OPTIMIZER.param_schedulers.lr.auto_lr_scaling.base_value={rate}",
    ]


@pytest.mark.slow
def test_linear__separates_classes_and_repeats_interrupted_last_test(
    separable, checkpoint, tmp_path
):
    overrides = [*LINEAR, *on(separable, tmp_path, checkpoint), *short()]
    run("config=benchmark/pirl/linear_imagenet1k", *overrides)
    found = final_accuracy(tmp_path)
    assert list(found) == ["conv1", "res2", "res3", "res4", "res5"]
    assert max(found.values()) == 100.0
    # As if killed during the last test.
    metrics, final = tmp_path / "metrics.json", tmp_path / "model_final_checkpoint_phase1.torch"
    whole, written = metrics.read_text(), final.stat().st_mtime_ns
    *before, _ = whole.splitlines(keepends=True)
    metrics.write_text("".join(before))
    run("config=benchmark/pirl/linear_imagenet1k", *overrides)
    assert metrics.read_text() == whole
    assert final.stat().st_mtime_ns == written


@pytest.mark.slow
def test_linear__stays_at_chance_on_shuffled_labels(checkpoint, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 64, "val": 64}, separable=False)
    out = tmp_path / "out"
    two = ["config.MODEL.HEAD.NUM_CLASSES=2"]
    overrides = [*LINEAR, *on(data, out, checkpoint), *short(), *two]
    run("config=benchmark/pirl/linear_imagenet1k", *overrides)
    # At a chance of 1/2, 32 ± 4 (standard deviation) of 64 images are correct: 50 ± 6.25 %.
    assert {k: v for k, v in final_accuracy(out).items() if abs(v - 50) > 3 * 6.25} == {}


@pytest.mark.slow
def test_linear__reads_inaturalist18_annotations(checkpoint, tmp_path):
    data = tmp_path / "inat"
    tiny.inaturalist(data)
    overrides = [*LINEAR, *on(data, tmp_path, checkpoint, ".", "."), *short()]
    classes = "config.MODEL.HEAD.NUM_CLASSES=10"
    run("config=benchmark/pirl/linear_inaturalist18", *overrides, classes)
    assert max(final_accuracy(tmp_path).values()) == 100.0


@pytest.mark.slow
def test_ensemble__probes_two_trunks_side_by_side(separable, checkpoint, tmp_path):
    other, out = write_checkpoint(tmp_path / "other.torch", seed=1), tmp_path / "out"
    overrides = ["+config/pirl/linear=resnet18_ensemble", *CPU, *on(separable, out, "")]
    members = f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES=[{checkpoint},{other}]"
    run("config=benchmark/pirl/ensemble_imagenet1k", *overrides, members, *short())
    assert max(final_accuracy(out).values()) == 100.0
    file = torch.load(out / "checkpoint.torch", weights_only=True)
    trunk = file["classy_state_dict"]["base_model"]["model"]["trunk"]
    for i, path in enumerate((checkpoint, other)):
        member = torch.load(path, weights_only=True)["classy_state_dict"]["base_model"]["model"]
        for name, value in member["trunk"].items():
            assert torch.equal(trunk[f"base_model.members.{i}.{name}"], value), name


@pytest.mark.slow
def test_semi_supervised__fine_tunes_on_list(separable, checkpoint, tmp_path):
    """The configs for 1 % and 10 % differ only in the list."""
    lines = [f"class{i % 2}/{i}.png class{i % 2}" for i in range(16)]
    (separable / "train" / "1percent.txt").write_text("\n".join(lines) + "\n")
    data = on(separable, tmp_path, checkpoint, "train/1percent.txt")
    overrides = ["+config/pirl/finetune=resnet18", *CPU, *data, *short(epochs=4, rate=0.1)]
    run("config=benchmark/pirl/semi_supervised_imagenet1k_1percent", *overrides)
    assert set(final_accuracy(tmp_path)) == {"0"}
    file = torch.load(tmp_path / "checkpoint.torch", weights_only=True)
    trunk = file["classy_state_dict"]["base_model"]["model"]["trunk"]
    before = torch.load(checkpoint, weights_only=True)["classy_state_dict"]["base_model"]["model"]
    name = "_feature_blocks.conv1.weight"
    assert not torch.equal(trunk[name], before["trunk"][name])  # the trunk is also trained


def run_svm(script, *overrides, check=True):
    """Run a VISSL script; the page also shows the result."""
    page = {"PIRL_PLUGIN_CONSOLE": "page"}
    return run(*overrides, command=[host_script(script)], environment=page, check=check)


def svm(voc, out, checkpoint):
    # The primal solver is deterministic, so fitting the same data again gives the same result.
    solver = [f"config.SVM.costs.costs_list={COSTS}", "config.SVM.dual=False"]
    return [*LINEAR, *on(voc, out, checkpoint, ".", "."), *solver]


def extracted(out, split, layer):
    """Return VISSL's features (N, D) and targets (N, classes), in image order."""
    rows = {}
    for file in out.glob(f"rank*_{split}_{layer}_features.npy"):
        parts = [
            np.load(str(file).replace("features", kind)) for kind in ("inds", "features", "targets")
        ]
        rows.update((int(i), (x, y)) for i, x, y in zip(*parts, strict=True))
    features, targets = zip(*(rows[i] for i in sorted(rows)), strict=True)
    features = np.stack(features)
    return features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-5), np.stack(targets)


def interpolated_ap(present, scores):
    """VOC's average precision: at each recall, the best precision at that recall or above."""
    order = np.argsort(-scores)
    hits = present[order].cumsum()
    precision = hits / np.arange(1, len(order) + 1)
    best = [precision[i:].max() for i in np.flatnonzero(present[order])]
    return float(np.mean(best))


def expected_ap(out, layer):
    features, targets = extracted(out, "train", layer)
    test_features, test_targets = extracted(out, "test", layer)
    found = []
    for column in range(targets.shape[1]):
        label = np.where(targets[:, column] == 1, 1, -1)
        fits = [
            LinearSVC(C=cost, class_weight={1: 2, -1: 1}, dual=False, max_iter=2000)
            for cost in COSTS
        ]
        scores = [
            cross_val_score(fit, features, label, cv=3, scoring="average_precision").mean()
            for fit in fits
        ]
        best = fits[int(np.argmax(scores))].fit(features, label)
        easy = test_targets[:, column] != -1
        scores = best.decision_function(test_features[easy])
        found.append(interpolated_ap(test_targets[easy, column] == 1, scores))
    return found


@pytest.mark.slow
def test_svm_voc07__matches_scikit_learn_in_a_reused_folder(voc, checkpoint, tmp_path):
    other = write_checkpoint(tmp_path / "other.torch", seed=1)
    config = "config=benchmark/pirl/svm_voc07"
    out = tmp_path / "svm"
    two = "config.DISTRIBUTED.NUM_PROC_PER_NODE=2"
    result = run_svm("train_svm.py", config, *svm(voc, out, other), two)
    assert "AP for various layers" in result.stdout
    first = np.load(out / "res5" / "test_ap.npy").ravel()
    np.testing.assert_allclose(first, expected_ap(out, "res5"), rtol=0, atol=1e-9)
    # Another checkpoint, in one process: nothing may be reused from the first run.
    run_svm("train_svm.py", config, *svm(voc, out, checkpoint))
    assert not list(out.glob("rank1_*"))
    for layer in ("conv1", "res5"):
        found = np.load(out / layer / "test_ap.npy").ravel()
        np.testing.assert_allclose(found, expected_ap(out, layer), rtol=0, atol=1e-9)
        assert 0 < found.mean() < 1
    assert not np.array_equal(found, first)


@pytest.mark.slow
def test_svm_voc07__failure_exits_with_error(voc, checkpoint, tmp_path):
    overrides = [*svm(voc, tmp_path, checkpoint), "config.SVM.loss=no_such_loss"]
    result = run_svm("train_svm.py", "config=benchmark/pirl/svm_voc07", *overrides, check=False)
    assert result.returncode == 1
    assert "Training the SVM failed" in result.stderr
    assert "[-1" not in result.stdout
