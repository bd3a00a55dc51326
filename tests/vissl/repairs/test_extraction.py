"""VISSL's feature extraction on a CPU."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from vissl.trainer.trainer_main import SelfSupervisionTrainer


def _trainer(owner_of_dummy_layer, seen):
    """VISSL's trainer with the task attributes that extraction uses on a CPU.

    ``owner_of_dummy_layer``: the trainer in VISSL 0.1.6, the task in git main.
    """

    def model(images):
        seen.append(images)
        return [images.mean(dim=(2, 3))]

    model.eval = lambda: None
    features = SimpleNamespace(EVAL_MODE_ON=False)
    trainer = object.__new__(SelfSupervisionTrainer)
    trainer.cfg = SimpleNamespace(
        DATA=SimpleNamespace(PIN_MEMORY=False),
        MODEL=SimpleNamespace(FEATURE_EVAL_SETTINGS=features),
        EXTRACT_FEATURES=SimpleNamespace(CHUNK_THRESHOLD=-1),
    )
    batch = {
        "data": [torch.rand(2, 3, 4, 4), torch.rand(1, 3, 4, 4)],
        "label": [torch.tensor([5, 6]), torch.tensor([7])],
        "data_idx": [torch.tensor([2, 0]), torch.tensor([1])],
    }
    trainer.task = SimpleNamespace(
        device=torch.device("cpu"),
        model=model,
        prepare_extraction=lambda pin_memory: None,
        init_distributed_data_parallel_model=lambda: None,
        available_splits=["TRAIN"],
        dataloaders={"train": [batch]},
    )
    trainer._cleanup_task = lambda: None
    if owner_of_dummy_layer == "trainer":
        trainer._add_dummy_layer = lambda: None
    else:
        trainer.task.add_dummy_layer = lambda: None
        trainer._add_dummy_layer = None
    return trainer, batch


@pytest.mark.parametrize("owner_of_dummy_layer", ["trainer", "task"])
def test_extraction__runs_on_cpu_with_host_loop(owner_of_dummy_layer, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    cuda = torch.Tensor.cuda
    seen = []
    trainer, batch = _trainer(owner_of_dummy_layer, seen)
    trainer.extract(str(tmp_path))
    written = {name: np.load(tmp_path / f"rank0_chunk0_train_heads_{name}.npy")
               for name in ("inds", "features", "targets")}  # fmt: skip
    images = torch.cat(batch["data"])
    assert torch.equal(seen[0], images)
    assert written["inds"].tolist() == [0, 1, 2]
    assert written["targets"].ravel().tolist() == [6, 7, 5]
    expected = images[[1, 2, 0]].mean(dim=(2, 3))
    assert torch.equal(torch.from_numpy(written["features"]), expected)
    assert torch.Tensor.cuda is cuda


def test_extraction__is_unchanged_on_gpu(tmp_path):
    trainer, _ = _trainer("trainer", [])
    trainer.task.device = torch.device("meta")  # the patch treats it like a GPU
    with pytest.raises(AssertionError, match=r"Set MACHINE\.DEVICE = gpu"):
        trainer.extract(str(tmp_path))
