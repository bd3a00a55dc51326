"""A finished run, and a command on other images: it was said to have succeeded on them."""

import shutil

import pytest

from pirl_plugin.checkpoints.training_run import write_run_config
from pirl_plugin.images.sources.folder import FolderSource
from pirl_plugin.memory.row_paths import RelativePaths, hash_paths
from pirl_plugin.vissl.hooks.rows import RowPathsHook
from tests.vissl.patches.test_resuming import OURS, compose, launch, write

LINEAR = ("config=benchmark/pirl/quick_linear", "config.OPTIMIZER.num_epochs=4")


def paths(split, folder):
    return f"config.DATA.{split}.DATA_PATHS=['{folder}']"


@pytest.fixture
def run_on(tmp_path):
    """Make a finished run on images."""

    def make(config, images=None):
        hooks = {}
        if images is not None:
            source = FolderSource(images)
            below = RelativePaths(source.path_of, range(len(source)), str(images))
            hooks = {RowPathsHook.name(): {"path_hashes": hash_paths(below)}}
        name = "model_final_checkpoint_phase3.torch"
        write(tmp_path, name, config, train_phase_idx=3, classy_state_dict={"hooks": hooks})
        write_run_config(config, tmp_path)
        return tmp_path

    return make


def test_finished_run__is_not_one_on_other_images(run_on, image_folder):
    train, val = image_folder / "train", image_folder / "val"
    run = run_on(compose(*OURS, paths("TRAIN", train)), train)
    assert launch(compose(*OURS, paths("TRAIN", train)), run) == "finished"
    assert launch(compose(*OURS, paths("TRAIN", f"{val}/../train")), run) == "finished"
    with pytest.raises(SystemExit, match=r"DATA_PATHS = .*val'\]: expected .*train'\], with which"):
        launch(compose(*OURS, paths("TRAIN", val)), run)


def test_finished_run__knows_its_images_where_they_were_moved(run_on, image_folder, tmp_path):
    train = image_folder / "train"
    run = run_on(compose(*OURS, paths("TRAIN", train)), train)
    moved = tmp_path / "moved" / "here"
    shutil.copytree(train, moved)
    config = compose(*OURS, paths("TRAIN", moved))
    assert launch(config, run) == "finished"
    image = next(moved.rglob("*.jpg"))
    image.rename(image.with_name("another.jpg"))
    with pytest.raises(SystemExit, match=r"config\.DATA\.TRAIN\.DATA_PATHS = .*: expected "):
        launch(config, run)


@pytest.mark.parametrize("split", ["TRAIN", "TEST"])
def test_finished_benchmark__is_not_one_on_other_images(split, run_on, image_folder):
    folders = {"TRAIN": image_folder / "train", "TEST": image_folder / "val"}
    both = [paths(*pair) for pair in folders.items()]
    run = run_on(compose(*LINEAR, *both))
    (run / "metrics.json").write_text('{"phase_idx": 7}\n')  # its last test is done
    assert launch(compose(*LINEAR, *both), run) == "finished"
    other = paths(split, image_folder)
    with pytest.raises(SystemExit, match=rf"config\.DATA\.{split}\.DATA_PATHS = .*: expected "):
        launch(compose(*LINEAR, *both, other), run)
