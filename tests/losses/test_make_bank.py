"""What is said of a bank that is small beside the number of negatives."""

from pirl_plugin import PIRLLoss

DIM = 8


def test_negatives__more_than_images_are_warned_of(caplog):
    PIRLLoss(50, num_negatives=50, embedding_dim=DIM, estimator="info_nce")
    assert not caplog.records
    PIRLLoss(50, num_negatives=51, embedding_dim=DIM, estimator="info_nce")
    (record,) = caplog.records
    assert "num_negatives = 51 with 50 images: rows are drawn more than once" in record.message


def test_nce__of_few_images_is_warned_of(caplog):
    """It ended below an untrained network, without a word."""
    PIRLLoss(2000, num_negatives=200, embedding_dim=DIM)
    PIRLLoss(2000, num_negatives=201, embedding_dim=DIM, estimator="nce_softmax")
    PIRLLoss(50, num_negatives=50, embedding_dim=DIM)  # a trial
    assert not caplog.records
    PIRLLoss(2000, num_negatives=201, embedding_dim=DIM)
    (record,) = caplog.records
    assert "estimator = nce with 201 negatives of 2000 images: its noise" in record.message
    assert "take info_nce" in record.message
