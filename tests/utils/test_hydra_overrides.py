"""Overrides that Hydra reads back as the texts that were put into them."""

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from pirl_plugin.utils.hydra_overrides import in_quotes, quoted


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "it's",
        'my "best" $run',
        "`id`",
        "!x",
        "a\\",
        "a\\'b",
        "\\\\",
        "C:\\d",
        "'",
        "a\\b'c\\\\'\\",
    ],
)
def test_text__comes_through_shell_and_hydra(text):
    parser = OverridesParser.create()
    assert parser.parse_override(f"K={quoted(text)}").value() == text
    (word,) = shlex.split(in_quotes("K", text))
    assert parser.parse_override(word).value() == text
    (word,) = shlex.split(in_quotes("K", [text, "b"]))
    assert [str(entry) for entry in parser.parse_override(word).value()][1] in ("b", "'b'")
