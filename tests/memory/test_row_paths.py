import random

import pytest
import torch

from pirl_plugin.bank import MemoryBank
from pirl_plugin.loss import PIRLLoss
from pirl_plugin.memory.row_paths import RelativePaths, hash_paths, match_paths
from pirl_plugin.vissl.hooks.rows import match_rows

PATHS = [f"n{c}/{i}.jpg" for c in range(3) for i in range(4)]


def test_relative_paths__of_some_rows_as_a_list_and_in_slices():
    paths = RelativePaths(["/d/a.jpg", "/e/b.jpg", "/d/c/d.jpg"].__getitem__, [2, 1, 0], "/d")
    assert list(paths) == paths[:] == ["c/d.jpg", "/e/b.jpg", "a.jpg"]
    assert paths[1:] == ["/e/b.jpg", "a.jpg"]


def test_hash_paths__tells_paths_apart_and_does_not_depend_on_the_others():
    paths = ["", "a", "a" * 8, "a" * 9, "b", "ab", "ba", "ü/日本.jpg", "a" * 5000, *PATHS]
    together = hash_paths(paths)
    assert together.dtype == torch.int64
    assert len(together.unique()) == len(paths)
    assert torch.equal(together, torch.cat([hash_paths([path]) for path in paths]))


def test_hash_paths__has_no_collision_among_many():
    paths = [f"train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG" for i in range(200_000)]
    assert len(hash_paths(paths).unique()) == len(paths)


def naive(before, now):
    return [before.index(path) if path in before else -1 for path in now]


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ([*PATHS[:5], "n1/new.jpg", *PATHS[6:]], "1 of 12 are new, such as 'n1/new.jpg' and 1 of"),
        (PATHS[:-1], "1 of the checkpoint's are gone"),
        ([*PATHS, "z.jpg"], "1 of 13 are new, such as 'z.jpg'"),
        ([PATHS[1], PATHS[0], *PATHS[2:]], "2 of the 12 images have another row, .* 'n0/1.jpg'"),
        (["other/1.jpg"] * 12, "12 of 12 are new, .* and 12 of the checkpoint's are gone"),
    ],
)
def test_compare__finds_each_image_again(now, says):
    changes = match_paths(hash_paths(PATHS), hash_paths(now))
    assert changes.rows.tolist() == naive(PATHS, now)
    with pytest.raises(ValueError, match=says):
        raise ValueError(changes.sentence(now))


def test_compare__counts_images_that_are_listed_twice():
    seven, eight = torch.tensor([7]), torch.tensor([8])
    once, twice = torch.cat([seven, eight]), torch.cat([seven, eight, eight])
    assert match_paths(twice, once).sentence(["a", "b"]) == "1 of the checkpoint's are gone"
    turned = match_paths(twice, twice.flip(0))
    assert (turned.num_new, turned.num_gone) == (0, 0)


def test_compare__agrees_with_a_search_of_each_path():
    rng = random.Random(0)
    now = [path for path in PATHS if rng.random() < 0.7] + ["new/1.jpg", "new/2.jpg"]
    rng.shuffle(now)
    assert match_paths(hash_paths(PATHS), hash_paths(now)).rows.tolist() == naive(PATHS, now)
    assert match_paths(hash_paths(PATHS), hash_paths(list(PATHS))) is None


def test_match_rows__keeps_rows_of_the_same_paths_and_initialises_new_ones():
    saved = PIRLLoss(12, embedding_dim=12, num_negatives=4).state_dict()
    saved["bank.rows"], saved["norm_constant"] = torch.eye(12), torch.tensor(36.0).double()
    saved["bank.visited"] = torch.ones(12).bool()
    now = ["new.jpg", *PATHS[3:]]
    fresh = MemoryBank(10, 12)
    fresh.rows.fill_(0.5)
    changes = match_paths(hash_paths(PATHS), hash_paths(now))
    matched = match_rows(saved, fresh, changes)
    assert torch.equal(matched["bank.rows"][1:], torch.eye(12)[3:])
    assert torch.equal(matched["bank.rows"][0], torch.full((12,), 0.5))
    assert matched["bank.visited"].tolist() == [False] + [True] * 9
    assert matched["_extra_state"] == saved["_extra_state"]
    assert matched["norm_constant"] == 30  # |D| times a mean of 3


def test_match_rows__keeps_a_given_norm_constant():
    saved = PIRLLoss(len(PATHS), embedding_dim=12, num_negatives=4, norm_constant=36).state_dict()
    changes = match_paths(hash_paths(PATHS), hash_paths(PATHS[3:]))
    assert match_rows(saved, MemoryBank(len(PATHS) - 3, 12), changes)["norm_constant"] == 36


def test_match_rows__of_a_replicated_bank_for_a_sharded_one():
    """The loss of a sharded bank has no rows in its own state, and still gets the matched ones."""
    before = PIRLLoss(len(PATHS), embedding_dim=12, num_negatives=4)
    before.update(torch.arange(3), torch.eye(12)[:3])
    now = ["new.jpg", *reversed(PATHS)]
    loss = PIRLLoss(len(now), embedding_dim=12, num_negatives=4, bank={"placement": "sharded"})
    changes = match_paths(hash_paths(PATHS), hash_paths(now))
    loss.load_state_dict(match_rows(before.state_dict(), loss.new_bank("replicated"), changes))
    found = loss.bank.lookup(torch.arange(len(now)))
    assert torch.equal(found[1:], before.bank.rows.flip(0))
    assert torch.equal(found[0], loss.new_bank("replicated").rows[0])
    visited = torch.empty(len(now)).bool()
    visited[:] = loss.bank.visited[loss.bank.local_index(torch.arange(len(now)))]
    assert visited.tolist() == [False] * 10 + [True] * 3
