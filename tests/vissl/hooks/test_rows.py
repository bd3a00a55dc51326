"""Which images the bank's rows are of, with and without ``DATA_LIMIT``."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from vissl.config import AttrDict
from vissl.data import build_dataset

from pirl_plugin.memory.row_paths import hash_paths
from pirl_plugin.vissl.adapters.loss import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.adapters.source import PIRLDiskDataset
from pirl_plugin.vissl.hooks.monitor import labels_of
from pirl_plugin.vissl.hooks.rows import (
    ChangedDataError,
    RowPathsHook,
    check_checkpoint_rows,
    image_paths,
)

LIMIT = 6


@pytest.fixture
def make_task(image_folder):
    """A task on 20 images, of which ``limit`` are drawn."""

    def make(limit=LIMIT, seed=0, balanced=False, changed_data="refuse"):
        split = {
            "DATA_SOURCES": ["pirl_disk_folder"],
            "DATA_PATHS": [str(image_folder / "train")],
            "LABEL_SOURCES": ["pirl_disk_folder"],
            "LABEL_PATHS": [str(image_folder / "train")],
            "LABEL_TYPE": "sample_index",
            "DATASET_NAMES": ["own"],
            "TRANSFORMS": [],
            "MMAP_MODE": True,
            "BATCHSIZE_PER_REPLICA": 2,
            "COPY_TO_LOCAL_DISK": False,
            "DATA_LIMIT": limit,
            "DATA_LIMIT_SAMPLING": {
                "IS_BALANCED": balanced,
                "SEED": seed,
                "SKIP_NUM_SAMPLES": 0,
            },
        }
        config = AttrDict(
            {"DATA": {"TRAIN": split}, "HOOKS": {"PIRL_RUN": {"changed_data": changed_data}}}
        )
        data = build_dataset(config, "TRAIN")
        return SimpleNamespace(config=config, datasets={"train": data}, checkpoint=None)

    return make


def resumed(task, saved):
    """``task``, to go on from a checkpoint whose rows are of the images of ``saved`` hashes."""
    loss = PIRLLoss(LIMIT, embedding_dim=LIMIT, num_negatives=4)
    state = loss.state_dict()
    state["bank.rows"] = torch.eye(LIMIT)
    hooks = {RowPathsHook.name(): {"path_hashes": saved}}
    task.checkpoint = {"classy_state_dict": {"hooks": hooks}, "loss": state}
    return task, loss


def saved_by(task):
    hook = RowPathsHook()
    hook.on_start(task)
    return hook.get_classy_state()["path_hashes"]


@pytest.mark.parametrize("balanced", [False, True])
def test_image_paths__are_those_of_the_images_that_are_trained_on(make_task, balanced):
    task = make_task(balanced=balanced)
    data, paths = task.datasets["train"], image_paths(task)
    read = [np.asarray(data[row]["data"][0]) for row in range(LIMIT)]
    everything = make_task(limit=-1)
    all_paths = image_paths(everything)
    assert len(paths) == len(set(paths)) == LIMIT < len(all_paths) == 20
    for path, pixels in zip(paths, read, strict=True):
        expected = everything.datasets["train"][all_paths.index(path)]["data"][0]
        assert np.array_equal(pixels, expected)
    assert saved_by(task).tolist() == hash_paths(paths).tolist()


def test_resume__with_another_draw_of_the_images_is_refused(make_task):
    saved = saved_by(make_task(seed=0))
    check_checkpoint_rows(*resumed(make_task(seed=0), saved))
    with pytest.raises(ChangedDataError, match=r"expected the images that the checkpoint was"):
        check_checkpoint_rows(*resumed(make_task(seed=1), saved))


def test_resume__with_another_draw_matches_rows_by_path(make_task):
    before, now = make_task(seed=0), make_task(seed=1, changed_data="match")
    task, loss = resumed(now, saved_by(before))
    check_checkpoint_rows(task, loss)
    paths, rows = image_paths(before), task.checkpoint["loss"]["bank.rows"]
    assert len(rows) == LIMIT
    kept = 0
    for path, row in zip(image_paths(now), rows, strict=True):
        if path in paths:
            kept += 1
            assert torch.equal(row, torch.eye(LIMIT)[paths.index(path)])
    assert kept > 0


def test_resume__takes_an_earlier_fingerprint_of_all_images_where_it_is_the_same(make_task):
    everything = saved_by(make_task(limit=-1))
    check_checkpoint_rows(*resumed(make_task(), everything))
    with pytest.raises(ChangedDataError, match=r"those of 20 images for 6 rows, as an earlier"):
        check_checkpoint_rows(*resumed(make_task(changed_data="match"), everything.flip(0)))


def test_labels__are_of_the_images_that_data_limit_leaves(make_task):
    task = make_task()
    classes = [path.split("/")[0] for path in image_paths(task)]
    assert 0 < classes.count("ants") < LIMIT
    numbers = {"ants": 0, "bees": 1}
    assert labels_of(task, torch.arange(LIMIT)).tolist() == [numbers[name] for name in classes]


def test_resume__keeps_the_rows_of_other_images_where_that_is_asked(make_task, caplog):
    task, loss = resumed(make_task(seed=1, changed_data="keep"), saved_by(make_task(seed=0)))
    check_checkpoint_rows(task, loss)
    assert torch.equal(task.checkpoint["loss"]["bank.rows"], torch.eye(LIMIT))
    assert "The images differ from the checkpoint's" in caplog.text
    assert "rows are kept" in caplog.text


def test_resume__matches_no_rows_of_a_sharded_checkpoint(make_task):
    task, loss = resumed(make_task(seed=1, changed_data="match"), saved_by(make_task(seed=0)))
    del task.checkpoint["loss"]["bank.rows"]
    with pytest.raises(ChangedDataError, match=r"= 'match': expected a replicated memory bank"):
        check_checkpoint_rows(task, loss)


def test_fingerprint__holds_no_list_of_all_paths(make_task, tmp_path):
    """A list took 20 GB on each rank at 10⁸ images, for 8 bytes of each."""
    file, count = tmp_path / "paths.npy", 400_000
    np.save(file, np.array([f"class/{row:030d}.jpg" for row in range(count)]))
    task = make_task(limit=-1)
    source = PIRLDiskDataset(task.config, "pirl_disk_filelist", str(file), "TRAIN")
    task.datasets["train"].data_objs = [source]
    tracemalloc.start()
    hashes = hash_paths(image_paths(task))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(hashes) == count
    assert most < 100 * count  # bytes; the strings and their list take 97 each, and a chunk 28 MB
