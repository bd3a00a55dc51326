"""What a finished linear benchmark, or its final checkpoint, says."""

import pytest

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1, svm_map
from tests.helpers.sweeps import finish, finish_svm


def test_linear_top1__is_that_of_the_last_epoch(tmp_path):
    with pytest.raises(ValueError, match="not finished"):
        linear_top1(tmp_path / "nowhere")
    finish(tmp_path, {"res4": 12.5, "res5": 37.5})
    assert linear_top1(tmp_path) == {"res4": 12.5, "res5": 37.5}
    finish(tmp_path, {"res5": 37.5}, tested=False)
    with pytest.raises(ValueError, match="no test accuracy of the last epoch"):
        linear_top1(tmp_path)


def test_linear_top1__does_not_need_the_lines_before(tmp_path):
    """A full disk, or a kill, may have cut the line of an earlier epoch short."""
    finish(tmp_path, {"res5": 37.5})
    metrics = tmp_path / "metrics.json"
    first, *others = metrics.read_text().splitlines()
    metrics.write_text("\n".join([first[:20], *others]))
    assert linear_top1(tmp_path) == {"res5": 37.5}


def test_final_checkpoint__is_whole(tmp_path):
    finish(tmp_path)
    final = tmp_path / "model_final_checkpoint_phase1.torch"
    assert final_checkpoint(tmp_path) == final
    final.write_bytes(final.read_bytes()[:-10])
    assert final_checkpoint(tmp_path) is None
    final.rename(tmp_path / "model_phase1.torch")
    assert final_checkpoint(tmp_path) is None


@pytest.mark.parametrize("kept", [0, 100, 200])
def test_svm_map__of_a_damaged_file_is_one_sentence(kept, tmp_path):
    """An empty one ended a sweep in a traceback, and so did the same command again."""
    finish_svm(tmp_path / "voc07", 50.0)
    assert svm_map(tmp_path / "voc07") == {"res5": 50.0}
    file = tmp_path / "voc07" / "res5" / "test_ap.npy"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"voc07 is not finished: {file} is damaged"):
        svm_map(tmp_path / "voc07")
