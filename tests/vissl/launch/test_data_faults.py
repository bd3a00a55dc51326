"""Faults of data, injected into runs of the host's own script."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers import faults
from tests.helpers.host_runs import run, settings, state
from tests.helpers.launched import TRACEBACK, quiet, started


@pytest.mark.slow
def test_mount__that_disappears_stops_all_ranks(image_folder, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(image_folder, data)
    overrides = settings(data, out, epochs=500, processes=2)
    with started(overrides, tmp_path) as faulty:
        faulty.wait_for("Saved checkpoint: ", count=2)
        data.rename(tmp_path / "unmounted")
        assert faulty.status() == 65
        sentence = quiet(faulty)
        assert "of the last 20 images cannot be read, expected at most" in sentence
        assert f"config.DATA.TRAIN.DATA_PATHS = ['{data / 'train'}']" in sentence
    newest = torch.load(out / "checkpoint.torch", weights_only=False)
    assert newest["loss"]["bank.rows"].isfinite().all()
    (tmp_path / "unmounted").rename(data)
    epochs = newest["train_phase_idx"] + 2
    assert "Loaded loss state" in run(*settings(data, out, epochs, processes=2)).stdout


def test_list__whose_paths_are_wrong_is_refused_before_the_run(tmp_path):
    data = tmp_path / "list.txt"
    data.write_text("".join(f"gone/{i}.jpg\n" for i in range(1000)))
    overrides = settings(tmp_path, tmp_path / "out", epochs=1)
    overrides[1] = f"config.DATA.TRAIN.DATA_PATHS=[{data}]"
    overrides.append("config.DATA.TRAIN.DATA_SOURCES=[pirl_disk_filelist]")
    result = run(*overrides, check=False)
    assert result.returncode == 1
    assert "200 of 200 looked at do not, such as " in result.stderr
    assert f"{tmp_path}/gone/0.jpg" in result.stderr
    assert TRACEBACK not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def one_epoch(image_folder, tmp_path_factory):
    """A run of one epoch, as if it had been stopped there."""
    out = tmp_path_factory.mktemp("rows")
    run(*settings(image_folder, out, epochs=1))
    return out / "model_final_checkpoint_phase0.torch"


@pytest.fixture
def stopped(one_epoch, image_folder, tmp_path):
    data, out = tmp_path / "moved", tmp_path / "out"
    shutil.copytree(image_folder, data)  # another folder, the same paths in it
    out.mkdir()
    shutil.copy(one_epoch, out / "model_phase0.torch")
    return data, out


def test_rows__follow_a_data_set_that_was_moved(stopped):
    data, out = stopped
    assert "Loaded loss state" in run(*settings(data, out, epochs=2)).stdout


def test_rows__of_other_images_are_refused_or_matched_by_path(stopped, make_image):
    data, out = stopped
    before = torch.load(out / "model_phase0.torch", weights_only=False)["loss"]["bank.rows"]
    (data / "train" / "ants" / "9.jpg").rename(data / "train" / "ants" / "00.jpg")
    for name in ("extra.jpg", "more.jpg"):
        make_image(data / "train" / "bees" / name, seed=77)
    refused = run(*settings(data, out, epochs=2), check=False)
    assert refused.returncode == 65
    assert "3 of 22 are new, such as 'ants/0" in refused.stderr
    assert "1 of the checkpoint's are gone" in refused.stderr
    assert "config.HOOKS.PIRL_RUN.changed_data=match" in refused.stderr
    assert TRACEBACK not in refused.stdout + refused.stderr
    frozen = [
        "config.HOOKS.PIRL_RUN.changed_data=match",
        "config.LOSS.pirl_loss.bank.momentum=0.999999",  # rows stay as they were loaded
    ]
    matched = run(*settings(data, out, epochs=2), *frozen)
    assert "rows matched by path" in matched.stdout
    after = state(out)[0]["bank.rows"]
    assert after.shape[0] == 22
    # ants: 0.jpg, the renamed 00.jpg, 1.jpg … 8.jpg; bees: 0.jpg … 9.jpg, 2 more
    now, then = [0, *range(2, 10), *range(10, 20)], [*range(9), *range(10, 20)]
    torch.testing.assert_close(after[now], before[then], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_rows__of_another_draw_for_data_limit_are_refused(image_folder, tmp_path):
    limit = ("config.DATA.TRAIN.DATA_LIMIT=8", "config.DATA.TRAIN.DATA_LIMIT_SAMPLING.SEED=")
    out = tmp_path / "out"
    run(*settings(image_folder, out, epochs=1), limit[0], f"{limit[1]}0")
    first = out.rename(tmp_path / "first") / "model_final_checkpoint_phase0.torch"
    out.mkdir()
    shutil.copy(first, out / "model_phase0.torch")  # as if it had been stopped there
    longer = settings(image_folder, out, epochs=2)
    refused = run(*longer, limit[0], f"{limit[1]}1", check=False)
    assert refused.returncode == 65
    assert "of 8 are new, such as '" in refused.stderr
    assert "Loaded loss state" in run(*longer, limit[0], f"{limit[1]}0").stdout


def test_benchmark__that_was_stopped_goes_on_with_its_own_images_alone(image_folder, tmp_path):
    """It went on with others, and its figure, of a mixture, was reported as theirs."""
    moved, others, out = (tmp_path / name for name in ("moved", "others", "out"))
    for folder in (moved, others):
        shutil.copytree(image_folder, folder)
    for image in others.glob("val/ants/*.jpg"):
        image.rename(image.with_name(f"other_{image.name}"))

    def measure(data, check=True, **environment):
        return run(
            "config=benchmark/pirl/quick_linear",
            f"config.DATA.TRAIN.DATA_PATHS=[{data / 'train'}]",
            f"config.DATA.TEST.DATA_PATHS=[{data / 'val'}]",
            "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
            "config.DATA.TEST.BATCHSIZE_PER_REPLICA=4",
            "config.DATA.NUM_DATALOADER_WORKERS=0",
            "config.MODEL.HEAD.NUM_CLASSES=2",
            "config.OPTIMIZER.num_epochs=2",
            f"config.CHECKPOINT.DIR={out}",
            check=check,
            environment=environment,
        )

    in_second_epoch = {"PYTHONPATH": str(Path(faults.__path__[0])), "FAULT_IN_STEP": "7:SIGTERM"}
    assert measure(image_folder, check=False, **in_second_epoch).returncode == 143
    refused = measure(others, check=False)
    assert refused.returncode == 65
    assert "config.DATA.TEST.DATA_PATHS = " in refused.stderr
    assert "4 of 8 are new, such as 'ants/other_" in refused.stderr
    assert TRACEBACK not in refused.stderr
    assert "Resume from file: " in measure(moved).stdout
    assert "is finished, with" in measure(image_folder).stdout
    assert measure(others, check=False).returncode == 1
