"""Weighted kNN compared with a plain loop and a hand-computed case, and refusals."""

import math

import pytest
import torch

from pirl_plugin.evaluation.knn import (
    find_neighbors,
    knn_accuracy,
    leave_one_out_accuracy,
    vote,
)

pytestmark = pytest.mark.tensors


def plain_knn(train, train_labels, test, test_labels, k, temperature):
    """Compute the same in plain Python, one image at a time."""

    def cosine(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))

    correct = 0
    for row, label in zip(test.tolist(), test_labels.tolist(), strict=True):
        similar = [cosine(row, other) for other in train.tolist()]
        best = sorted(range(len(similar)), key=lambda i: -similar[i])[:k]
        votes = {}
        for i in best:
            name = int(train_labels[i])
            votes[name] = votes.get(name, 0.0) + math.exp(similar[i] / temperature)
        correct += max(votes, key=votes.get) == label
    return 100 * correct / len(test)


def random_case(num_train=60, num_test=37, dim=5, classes=4, seed=0):
    draw = torch.Generator().manual_seed(seed)
    train = torch.randn(num_train, dim, generator=draw, dtype=torch.float64)
    test = torch.randn(num_test, dim, generator=draw, dtype=torch.float64)
    train_labels = torch.randint(classes, (num_train,), generator=draw)
    return train, train_labels, test, torch.randint(classes, (num_test,), generator=draw)


@pytest.mark.parametrize(
    ("k", "temperature", "chunk", "block"),
    [(1, 0.07, 1, 7), (3, 1.0, 10, 25), (20, 0.07, 10, 25), (60, 1.0, 1000, 1000)],
)
def test_knn_accuracy__matches_plain_loop(k, temperature, chunk, block):
    train, train_labels, test, test_labels = case = random_case()
    expected = plain_knn(*case, k, temperature)
    assert knn_accuracy(*case, k=k, temperature=temperature) == pytest.approx(expected)
    rows, cosines = find_neighbors(test, train, 60, chunk=chunk, block=block)
    predicted = vote(rows[:, :k], cosines[:, :k], train_labels, temperature, chunk)
    found = 100 * float((predicted == test_labels).double().mean())
    assert found == pytest.approx(expected)
    assert cosines.dtype == torch.float64  # the queries are the gallery


@pytest.mark.parametrize(("chunk", "block"), [(1, 7), (10, 25), (60, 11), (1000, 1000)])
def test_find_neighbors__leaves_one_out_in_blocks(chunk, block):
    features = random_case()[0]
    cosine = torch.nn.functional.cosine_similarity(features[:, None], features[None], dim=2)
    expected = cosine.fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)[:, :-1]
    found = find_neighbors(features, features, 99, leave_one_out=True, chunk=chunk, block=block)
    assert torch.equal(found[0], expected)


@pytest.mark.parametrize("k", [1, 3, 20, 100])
def test_leave_one_out_accuracy__matches_plain_loop(k):
    features, labels, *_ = random_case(num_train=40)
    correct = 0.0
    for row in range(40):
        is_other = torch.arange(40) != row
        one = slice(row, row + 1)
        others = features[is_other], labels[is_other]
        correct += plain_knn(*others, features[one], labels[one], k, 0.2) / 100
    found = leave_one_out_accuracy(features, labels, k=k, temperature=0.2)
    assert found == pytest.approx(100 * correct / 40)


@pytest.mark.parametrize(("gap", "winner"), [(0.046, 9), (0.051, 5)])
def test_votes__default_to_temperature_of_wu_et_al(gap, winner):
    """Two votes equal one with a cosine larger by τ ln 2 = 0.0485 (τ = 0.07)."""
    cosine = torch.tensor([0.9, 0.9 - gap, 0.9 - gap])
    train = torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1)
    labels = torch.tensor([5, 9, 9])
    test, truth = torch.tensor([[1.0, 0.0]]), torch.tensor([winner])
    nearest = find_neighbors(test, train, 3)
    assert knn_accuracy(train, labels, test, truth) == 100.0
    assert torch.equal(vote(*nearest, labels), truth)


def test_knn_accuracy__accepts_more_classes_than_k_and_any_labels():
    train = torch.eye(300)
    labels = torch.arange(300) * 1_000_003 - 7  # neither dense nor positive
    assert knn_accuracy(train, labels, train * 3, labels, k=5) == 100.0


def test_knn_accuracy__accepts_one_image():
    one, label = torch.ones(1, 3), torch.tensor([8])
    assert knn_accuracy(one, label, one, label) == 100.0


@pytest.mark.parametrize("temperature", [1e-4, 1e-2])
def test_knn_accuracy__does_not_overflow_at_small_temperature(temperature):
    train, train_labels, test, test_labels = (
        x.float() if x.is_floating_point() else x for x in random_case()
    )
    expected = plain_knn(train, train_labels, test, test_labels, 1, 1.0)  # the closest one decides
    actual = knn_accuracy(train, train_labels, test, test_labels, temperature=1e-4)
    assert actual == pytest.approx(expected)
    assert 0 <= knn_accuracy(train, train_labels, test, test_labels, temperature=temperature) <= 100


def test_knn_accuracy__accepts_reduced_precision(subtests):
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        with subtests.test(dtype=dtype):
            train = torch.eye(6, dtype=dtype)
            assert knn_accuracy(train, torch.arange(6), train, torch.arange(6)) == 100.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: compares it with the CPU")
def test_knn_accuracy__matches_cpu_on_cuda():
    case = random_case()
    assert knn_accuracy(*(x.cuda() for x in case)) == knn_accuracy(*case)


def test_knn_accuracy__refuses_invalid_arguments(subtests):
    for changes, message in (
        (
            {"train_labels": torch.ones(5).long()},
            r"train_labels is torch.int64 of shape \(5,\): expected .* integer for each of 4 rows",
        ),
        ({"test_labels": torch.ones(3).long()}, r"test_labels is .* \(3,\): .* for each of 2"),
        ({"test_labels": torch.ones(2)}, "torch.float32 .*: expected a tensor with one integer"),
        ({"test_labels": [1, 1]}, "of type list: expected a tensor with one integer"),
        ({"test_features": torch.full((2, 3), math.nan)}, "features have NaN"),
        ({"train_features": torch.full((4, 3), math.inf)}, "features have NaN or infinite values"),
        (
            {"test_features": torch.ones(0, 3), "test_labels": torch.ones(0).long()},
            "test_features = .*: expected at least one row",
        ),
        ({"k": 0}, "`k` = 0 with 4 rows: expected at least one neighbor"),
        ({"temperature": 0.0}, "`temperature` = 0.0: expected a number above 0, such as 0.07"),
    ):
        with subtests.test(message):
            case = {
                "train_features": torch.ones(4, 3),
                "train_labels": torch.ones(4).long(),
                "test_features": torch.ones(2, 3),
                "test_labels": torch.ones(2).long(),
            }
            with pytest.raises(ValueError, match=message):
                knn_accuracy(**{**case, **changes})
    with pytest.raises(ValueError, match=r"^labels is .*\(3,\): .* for each of 4 rows"):
        leave_one_out_accuracy(torch.ones(4, 3), torch.ones(3).long())


def test_leave_one_out__leaves_out_groups():
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    rows, _ = find_neighbors(
        features, features, 1, leave_one_out=True, groups=torch.tensor([0, 0, 5, 5])
    )
    assert rows[:, 0].tolist() == [3, 3, 1, 1]
