"""What the loss says by itself: a forgotten update, without touching the user's logging."""

import subprocess
import sys

import torch

from pirl_plugin import PIRLLoss


def test_update__that_is_forgotten_is_asked_for_once(caplog):
    loss = PIRLLoss(20, embedding_dim=4, num_negatives=8, estimator="info_nce")
    rows, f = torch.arange(4), torch.randn(4, 4)
    for _ in range(99):
        loss([f, f], rows)
    loss.update(rows, f)
    assert "since its memory bank was last updated" not in caplog.text
    for _ in range(250):
        loss([f, f], rows)
    assert caplog.text.count("PIRLLoss was given 100 batches since its memory bank was") == 1


def test_update__is_not_asked_for_after_many_parts_of_a_batch(caplog):
    loss = PIRLLoss(200, embedding_dim=4, num_negatives=8, estimator="info_nce")
    rows, f = torch.arange(128), torch.randn(128, 4)
    for _ in range(2):
        with loss.micro_batches(rows):
            for part, mine in zip(f, rows, strict=True):
                loss([part[None], part[None]], mine[None])
        loss.update(rows, f)
    assert "since its memory bank was last updated" not in caplog.text


def test_loss__leaves_the_users_logging_alone():
    """``logging.warning`` made a handler, and ``basicConfig`` had no effect after it."""
    code = (
        "import logging; from pirl_plugin import PIRLLoss;"
        "PIRLLoss(20, embedding_dim=8, num_negatives=64); assert not logging.root.handlers"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "num_negatives = 64 with 20 images" in done.stderr
