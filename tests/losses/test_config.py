"""Every key of ``LOSS.pirl_loss`` is checked, without torch and without a bank."""

import subprocess
import sys

import pytest

from pirl_plugin.losses import config
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import bank

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"estimator": "nse"},
            "estimator = 'nse': expected one of nce, nce_softmax, info",
        ),
        ({"estimator": None}, "estimator = None: expected one of"),
        ({"temperature": 0}, "temperature = 0: expected a number from 0.0015 to 1000; the paper"),
        ({"temperature": None}, "temperature = None: expected a number"),
        ({"temperature": NAN}, "temperature = nan: expected a number"),
        ({"temperature": 1e30}, r"temperature = 1e\+30: expected a number"),
        ({"temperature": 10**400}, "temperature = 1000.*: expected a number"),
        ({"temperature": True}, "temperature = True: expected a number"),
        (
            {"lambda_invariance": 1.5},
            r"lambda_invariance = 1.5: expected a weight in \[0, 1\]; set",
        ),
        ({"lambda_invariance": "0.5"}, "lambda_invariance = '0.5': expected a weight"),
        ({"num_negatives": "9"}, "num_negatives = '9': expected a whole number from 1"),
        ({"num_negatives": 0}, "num_negatives = 0: expected a whole number from 1"),
        ({"num_negatives": 1.5}, "num_negatives = 1.5: expected a whole number"),
        ({"num_negatives": 1e30}, r"num_negatives = 1e\+30: expected a whole number"),
        ({"num_negatives": True}, "num_negatives = True: expected a whole number"),
        ({"negatives": "all"}, "negatives = 'all': expected one of per_image, per_batch; set it"),
        ({"replacement": [1, 2]}, r"replacement = \[1, 2\]: expected true or false; set it"),
        ({"replacement": 1}, "replacement = 1: expected true or false"),
        ({"norm_constant": -1}, "norm_constant = -1: expected a number above 0, or null to esti"),
        ({"norm_constant": 0}, "norm_constant = 0: expected a number above 0"),
        ({"norm_constant": INF}, "norm_constant = inf: expected a number above 0"),
        ({"norm_constant_momentum": 2}, "norm_constant_momentum = 2: expected a weight"),
        ({"term_weights": [0, 0]}, r"term_weights = \[0, 0\]: expected weights of at least 0, one"),
        ({"term_weights": [1, -1]}, r"term_weights = \[1, -1\]: expected weights of at least 0"),
        ({"term_weights": 0.5}, "term_weights = 0.5: expected weights"),
        ({"term_weights": []}, r"term_weights = \[\]: expected weights"),
        ({"embedding_dim": 0}, "embedding_dim = 0: expected a whole number"),
        ({"scores": "fast"}, "scores = 'fast': expected one of auto, plain, blocked, triton"),
        (
            {"num_train_samples": 1},
            "num_train_samples = 1: expected a number of images, at least",
        ),
        ({"num_train_samples": "9"}, "num_train_samples = '9': expected a number of images"),
        ({"bank": 3}, "bank = 3: expected a section; write it"),
        ({"bank": {"momentum": 1}}, r"bank.momentum = 1: expected a weight in \[0, 1\); set"),
        (
            {"bank": {"placement": "disk"}},
            "bank.placement = 'disk': expected one of replicated, ",
        ),
        ({"bank": {"dtype": "int8"}}, "bank.dtype = 'int8': expected one of float32, bfloat16, fl"),
        (
            {"bank": {"seed": "12"}},
            "bank.seed = '12': expected a whole number of at least 0, or",
        ),
        ({"bank": {"seed": -1}}, "bank.seed = -1: expected a whole number"),
        ({"bank": {"init": "zeros"}}, "bank.init = 'zeros': expected one of random, embeddings"),
        ({"bank": {"overlap": "yes"}}, "bank.overlap = 'yes': expected true or false"),
        ({"bank": {"size": 3}}, r"bank.size = 3: expected a key of .*bank \(momentum, placement"),
        (
            {"temprature": 0.1},
            r"temprature = 0.1: expected a key of .*; write temperature",
        ),
        ({"xyz": 0.07}, r"xyz = 0.07: expected a key of LOSS.pirl_loss \(num_train.*; remove it"),
        (
            {"replacement": False, "num_negatives": 40, "num_train_samples": 40},
            "num_negatives = 40: expected at most 39 without replacement from 40 images; lower it",
        ),
    ],
)
def test_config__refuses_what_the_loss_cannot_use(keys, message):
    with pytest.raises(ValueError, match=r"^LOSS\.pirl_loss\." + message) as refusal:
        PIRLLossConfig.from_mapping({"name": "pirl_loss", **keys})
    assert "\n" not in str(refusal.value)
    assert "; " in str(refusal.value)  # says what to do


def test_config__takes_what_the_host_hands_over():
    section = {"name": "pirl_loss", "num_train_samples": -1, "term_weights": (0.5, 0.5), "bank": {}}
    found = PIRLLossConfig.from_mapping(section)
    assert found == PIRLLossConfig(term_weights=[0.5, 0.5])
    assert found.bank.seed is None
    assert PIRLLossConfig.from_mapping({"replacement": False}).num_negatives == 32000
    assert PIRLLossConfig.from_mapping({"temperature": 1, "norm_constant": 7}).temperature == 1


def test_loss__needs_the_number_of_images():
    with pytest.raises(ValueError, match="num_train_samples = -1: expected the number of training"):
        PIRLLoss(-1)


def test_hyperparameters__are_every_key():
    found = PIRLLossConfig().hyperparameters()
    keys = {f.name for f in config.fields(PIRLLossConfig)} - {"num_train_samples", "bank"}
    keys |= {f"bank.{f.name}" for f in config.fields(config.BankConfig)}
    assert set(found) == keys


def test_dtypes__are_those_of_the_bank():
    assert tuple(bank.DTYPES) == config.DTYPES


def test_config__is_read_without_torch():
    code = (
        "import sys; from pirl_plugin.losses.config import PIRLLossConfig;"
        "PIRLLossConfig.from_mapping({'estimator': 'info_nce'}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
