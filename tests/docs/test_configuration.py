"""The committed configuration reference is what the code says."""

import json
import runpy
from pathlib import Path

from pirl_plugin.vissl.checks.keys import OURS, TABLE
from tests.helpers import composed

DOCS = Path(__file__).parents[2] / "docs"


def test_page__is_up_to_date():
    script = runpy.run_path(str(DOCS / "make_configuration.py"))
    message = "run python docs/make_configuration.py"
    assert script["page"]() == script["PAGE"].read_text(), message


def test_page__has_every_key_of_ours():
    """What our configs set and the host's defaults do not have, and the sections of the checks."""
    known = runpy.run_path(str(DOCS / "make_configuration.py"))["documented"]()
    hosts = composed.defaults()
    keys = {key for values in json.loads(composed.RECORD.read_text()).values() for key in values}
    ours = {
        key for key in keys if not any(host == key or host.startswith(f"{key}.") for host in hosts)
    }
    ours |= {f"{section}.{key}" for section, names in OURS.items() for key in names}
    ours |= {key for key in TABLE if "PIRL" in key or "TRUST_PICKLE" in key}
    inside = ("DATA.TRAIN.VIEWS.photometric.",)  # the keys of DATA.TRAIN.PHOTOMETRIC
    ours -= {"DATA.TRAIN.VIEWS", "DATA.TRAIN.PHOTOMETRIC"}  # sections, not keys
    assert len(ours) > 50
    assert {key for key in ours if not key.startswith(inside)} <= known
