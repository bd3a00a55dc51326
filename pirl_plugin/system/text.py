"""Text for people: names, numbers and times."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence


def printable(text: str, keep: str = "") -> str:
    r"""Return a text as one line of UTF-8, with other bytes and control characters escaped.

    Standard streams, warnings and errors do this to all text; use it for names in lists and tables.

    Args:
        text: any text.
        keep: control characters to keep.

    Example:
        >>> print(printable("a\n\x1b[31m\udcff.jpg"))
        a\n\x1b[31m\xff.jpg
    """
    named = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:x}", text)
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in named)


def counted(number: int, thing: str) -> str:
    """Format a number and a noun, in the plural if needed.

    Example:
        >>> counted(1, "epoch"), counted(1200, "step")
        ('1 epoch', '1,200 steps')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Format a time in hours, minutes and seconds.

    Example:
        >>> span(200.4), span(300000)
        ('0:03:20', '3 days, 11:20:00')
    """
    return str(datetime.timedelta(seconds=round(seconds)))


def truncate(names: Sequence[str], most: int = 4) -> str:
    """Join the names, or the first of them.

    >>> truncate(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
