"""JSON that people write: what its text says, and nothing that Python makes of it."""

from __future__ import annotations

import json


def parsed(text: str) -> object:
    """Return what a JSON text holds; numbers as the text has them, since ``1.10`` may be a password, or half of one.

    What an editor for UTF-8 puts before it is left out.

    :raises ValueError: it is no JSON, or it is nested too deeply.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
