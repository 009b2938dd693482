"""A knob: a field of a Mirror with what it means, the values that it takes, and the option of a command line.

It is declared once, where the field is (:mod:`airflow_mirror.mirror`): the constructor checks by it, and options are made
from it. No socket, no clock.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from airflow_mirror.common import patterns
from airflow_mirror.errors import InvalidField

_KNOB = "knob"
_HELP_WIDTH = 74
_MODULE = re.compile(r" \(airflow_mirror\.[\w.]+\)")  # for who reads the declaration


@dataclass(frozen=True)
class Values:
    """The values that a knob takes.

    :param checked: returns a value as the Mirror keeps it; takes the field's name, for the error.
    :param option: how argparse reads one.
    """

    checked: Callable[[str, Any], Any]
    option: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """See the module.

    :param help: for people; the default is added to an option's. "": the option is not shown.
    :param option: as ``--include``; "": there is none.
    :param section: under which the help shows the option; "": under the first.
    """

    values: Values
    help: str
    option: str = ""
    metavar: str | None = None
    section: str = ""

    def add(self, parser: argparse._ActionsContainer, default: object) -> None:
        """Add the option; what is not given is None, because a Mirror's file may say it."""
        text = _MODULE.sub("", self.help)
        if self.values.option.get("action") == "append":
            text += "; may be repeated"
        if default not in (None, False, (), ""):
            text += f" (default: {_shown(default)})"
        more: dict[str, Any] = {} if self.metavar is None else {"metavar": self.metavar}
        shown = textwrap.fill(text, _HELP_WIDTH, break_on_hyphens=False).replace("%", "%%") or argparse.SUPPRESS
        parser.add_argument(self.option, default=None, help=shown, **self.values.option, **more)


def knob(
    default: Any, values: Values, help: str, option: str = "", metavar: str | None = None, section: str = ""
) -> Any:  # fmt: skip
    """Return a field of a dataclass. :param default: a mapping is copied for each instance."""
    metadata = {_KNOB: Knob(values=values, help=help, option=option, metavar=metavar, section=section)}
    if isinstance(default, dict):
        return field(default_factory=dict, hash=False, metadata=metadata)
    return field(default=default, metadata=metadata)


def knobs_of(kind: Any) -> Iterator[tuple[Field[Any], Knob]]:
    """Yield the fields of a dataclass, or of an instance, that are knobs."""
    return ((one, one.metadata[_KNOB]) for one in fields(kind) if _KNOB in one.metadata)


def check(instance: Any) -> None:
    """Check each knob of a dataclass as its declaration says, and keep what that returns; for its ``__post_init__``.

    :raises InvalidField: names the field, its value and the remedy.
    """
    for one, its in knobs_of(instance):
        object.__setattr__(instance, one.name, its.values.checked(one.name, getattr(instance, one.name)))


def add_options(p: argparse._ActionsContainer, kind: Any, leave_out: Collection[str] = ()) -> None:
    """Add the options of a dataclass's knobs, each under its section. :param leave_out: fields that get none."""
    sections: dict[str, argparse._ActionsContainer] = {"": p}
    for one, its in knobs_of(kind):
        if its.option and one.name not in leave_out:
            if its.section not in sections:
                sections[its.section] = p.add_argument_group(its.section)
            its.add(sections[its.section], one.default)


def options_given(kind: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of those knobs whose options a command has, and were given, by field."""
    given = {one.name: getattr(arguments, _dest(knob.option), None) for one, knob in knobs_of(kind) if knob.option}
    return {name: value for name, value in given.items() if value is not None}


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ", ".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def _dest(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


# --- the values ---------------------------------------------------------------------------------------------------------


def _plainly(is_good: Callable[[Any], bool], cause: str, remedy: str) -> Callable[[str, Any], Any]:
    def checked(field: str, value: Any) -> Any:
        if isinstance(value, bool) or not is_good(value):  # True is a number to Python
            raise InvalidField(field, value, cause, remedy)
        return value

    return checked


def names(*, commas: bool) -> Values:
    """Names or regular expressions. :param commas: see :func:`.patterns.parse`."""
    return Values(lambda field, value: patterns.parse(field, value, commas=commas), {"action": "append"})


def given_names() -> Values:
    """Names as they are, none of them a pattern."""

    def checked(field: str, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(n, str) for n in value):
            raise InvalidField(field, value, "no list of names", "Give names, as a list.")
        return value

    return Values(checked, {"nargs": "+"})


def one_of(*allowed: str) -> Values:
    """One of some words."""

    def checked(field: str, value: Any) -> Any:
        if value not in allowed:
            raise InvalidField(field, value, "unknown", f"Use one of {', '.join(allowed)}.")
        return value

    return Values(checked, {"choices": allowed})


def switch() -> Values:
    """Yes or no. Its option says yes."""

    def checked(field: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise InvalidField(field, value, "not a yes or no", "Use True or False.")
        return value

    return Values(checked, {"action": "store_true"})


def seconds(least: float, most: float, *, optional: bool = False) -> Values:
    """A time in seconds. :param optional: or None."""

    def is_good(value: Any) -> bool:
        if value is None:
            return optional
        return isinstance(value, int | float) and least <= value <= most

    return Values(_plainly(is_good, "not a time", f"Give seconds from {least} to {most}."), {"type": float})


def number(text: str) -> float:
    """Return a number from 0 on: endless is none.

    :raises ArgumentTypeError: it is none. :raises ValueError: likewise; argparse says it.
    """
    found = float(text)
    if not 0 <= found < math.inf:  # nor is it true of nan
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return found


def limit() -> Values:
    """A time in seconds that ends."""

    def is_good(value: Any) -> bool:
        return isinstance(value, int | float) and 0 <= value < math.inf

    return Values(_plainly(is_good, "not a number that makes sense here", "Use one from 0 on."), {"type": number})


def share() -> Values:
    """A number from 0 to 1."""

    def is_good(value: Any) -> bool:
        return isinstance(value, int | float) and 0 <= value <= 1

    return Values(_plainly(is_good, "not a share", "Give a number from 0 (no hole) to 1 (any)."), {"type": float})


def whole(least: int, cause: str, remedy: str, *, most: int | None = None, optional: bool = True) -> Values:
    """A whole number. :param optional: or None."""

    def is_good(value: Any) -> bool:
        if value is None:
            return optional
        return isinstance(value, int) and least <= value and (most is None or value <= most)

    return Values(_plainly(is_good, cause, remedy), {"type": int})


def text(cause: str = "not text", remedy: str = "", *, empty: bool = True, optional: bool = True) -> Values:
    """A text. :param optional: or None."""

    def is_good(value: Any) -> bool:
        return optional if value is None else isinstance(value, str) and (empty or bool(value))

    return Values(_plainly(is_good, cause, remedy), {})


def anything(checked: Callable[[str, Any], Any] = lambda _, value: value) -> Values:
    """What a rule of its own checks."""
    return Values(checked, {})


def of_several(known: Sequence[str]) -> Values:
    """Some of several words, in a fixed order, each once; as a list, or as one text with commas."""
    remedy = f"Use some of {', '.join(known)}."

    def checked(field: str, value: Any) -> Any:
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Sequence):
            raise InvalidField(field, value, "no list of names", remedy)
        given = [one for item in items if (one := item.strip() if isinstance(item, str) else item) != ""]
        for one in given:
            if one not in known:
                raise InvalidField(field, one, "unknown", remedy)
        return tuple(one for one in known if one in given)

    return Values(checked, {})
