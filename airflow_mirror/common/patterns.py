"""Which names a Mirror selects: names, regular expressions of whole names, lists, and the forms that other tools take.

Those are MirrorMaker 2's comma lists (``orders, pay.*``) and the ``a|b`` of the first MirrorMaker. Their expressions are
Java's, ours Python's. They agree on what people use. Where they don't, an expression is refused by the name of what is
Java's alone: some would otherwise mean something else here without a word (``[a-z&&[^x]]``).

Pure: no cluster is queried.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from airflow_mirror.errors import InvalidField

# What java.util.regex.Pattern understands and Python does not, or otherwise: (the form, its name, what to write instead).
_JAVA_ONLY = tuple(
    (re.compile(form), name, instead)
    for form, name, instead in (
        (r"\\[pP]", r"the class \p{...}", "Write a class such as [A-Za-z]."),
        (r"\\[QE]", r"the quotation \Q...\E", "Put a backslash before each special character."),
        (r"\\k<", r"the back reference \k<name>", "Write (?P=name)."),
        (r"\\x\{", r"the character \x{...}", "Write \\xhh or \\uhhhh."),
        (r"\\b\{", r"the boundary \b{g}", r"Write \b."),
        (r"\\z", r"the end of input \z", "Leave it out: an expression matches a whole name."),
        (r"\\[ceGhHRXV]", "an escape that only Java knows", "Write the characters that it stands for."),
        (r"\(\?<(?![=!])", "the named group (?<name>...)", "Write (?P<name>...)."),
        (r"\(\?[a-zA-Z]*[dU-][a-zA-Z-]*\)", "a flag that only Java knows", "Write (?i:...) around what it is for."),
        (r"(?<!^)\(\?[imsux]+\)", "a flag in the middle", "Write (?i:...) around what it is for."),
    )
)
_COUNT = re.compile(r"\{\d*,\d*\}")
_FLAGS = re.compile(r"\(\?[imsux]+\)")
_IN_A_CLASS = (
    ("&&", "the intersection of classes [...&&...]", "Write a look-ahead such as (?!x)[a-z]."),
    ("[", "a class in a class [...[...]]", r"Write one class; a bracket in it is \[."),
)


def parse(field: str, value: Iterable[str] | str, *, commas: bool) -> tuple[str, ...]:
    """Return the names and expressions of a Mirror's field.

    A text is a comma list. A comma within brackets, or behind a backslash, separates nothing.

    :param commas: no name has a comma or a blank, as with topics and settings: then the items of a list may be comma
        lists, too, and blanks mean nothing.
    :raises InvalidField: it is no list, or an item is empty or no text.
    :raises InvalidField: an item is no expression, or one that only Java knows.
    """
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        none = " For none, leave the field out, or give []." if value is None else ""
        raise InvalidField(field, value, "no list of names or patterns", f"Use one text, or a list of texts.{none}")
    given = [value] if isinstance(value, str) else list(value)
    found: list[str] = []
    for item in given:
        if not isinstance(item, str):
            raise InvalidField(field, item, "not a name or pattern", "Use non-empty strings.")
        several = _split(item) if commas or isinstance(value, str) else [item]
        found += ["".join(one.split()) if commas else one for one in several]
    for one in found:
        if not one:
            raise InvalidField(field, value, "an empty name or pattern", "Use non-empty strings.")
        _check(field, one)
    return tuple(found)


def of_older_tools(text: str) -> list[str]:
    """Return the items of a comma list as the older tools read it: to them each comma is a ``|`` of one expression.

    So it is one within brackets, too, and a flag before an item is one of all items behind it. Items stay apart where
    that means the same. A comma of a count is none: with a ``|`` in there no tool starts.
    """
    items = [_with_bars(item) for item in _split(text)]
    flagged = next((at for at, item in enumerate(items) if _FLAGS.match(item)), len(items))
    return [*items[:flagged], *filter(None, ["|".join(items[flagged:])])]


def matches(patterns: Iterable[str], name: str) -> bool:
    """Return whether one of the patterns is a name, or matches the whole of it; a dot is any character, as a group's id
    may have line breaks.
    """
    names, expressions = _compiled(tuple(patterns))
    return name in names or any(one.fullmatch(name) for one in expressions)


@lru_cache
def _compiled(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return patterns as names and as expressions. Python's own cache holds 512, and a list may be longer: each of its
    expressions would be compiled again for each name.
    """
    return frozenset(patterns), tuple(re.compile(p, re.DOTALL) for p in patterns)


def is_name(pattern: str) -> bool:
    """Return whether people mean one name by it: nothing in it is special to an expression, but for dots."""
    return not re.search(r"[\\^$*+?{}\[\]|()]", pattern)


def name_of(pattern: str) -> str | None:
    """Return the one name that is meant: as it stands, or with what is special escaped (:func:`exact`); None: several."""
    rest, escaped = re.subn(r"\\\W", "", pattern)
    if not is_name(rest):
        return None
    return re.sub(r"\\(\W)", r"\1", pattern) if escaped else pattern


def exact(name: str) -> str:
    """Return a pattern that matches this name alone: in most names a dot stands for any character."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else re.escape(name)


def invalid_pattern(
    field: str, pattern: str, cause: str,
    remedy: str = "Escape special characters with a backslash, or name the topic or group literally.",
) -> InvalidField:  # fmt: skip
    """Return the error for a pattern that is no regular expression of Python."""
    return InvalidField(field, pattern, f"not a valid regular expression: {cause}", remedy)


def _check(field: str, pattern: str) -> None:
    for at, in_class in _places(pattern):
        for form, name, instead in _JAVA_ONLY:
            if form.match(pattern, at) and (not in_class or pattern[at] == "\\"):
                raise invalid_pattern(field, pattern, f"{name} is Java's, not Python's", instead)
        for text, name, instead in _IN_A_CLASS:
            if in_class and pattern.startswith(text, at):
                raise invalid_pattern(field, pattern, f"{name} is Java's, not Python's", instead)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # "[a||b]": a later Python may read it as a union of sets
            re.compile(pattern)
    except (re.error, FutureWarning) as e:
        raise invalid_pattern(field, pattern, str(e)) from e


def _split(text: str) -> list[str]:
    """Return the items of a comma list."""
    depth, cuts = 0, [-1]
    counts = {at for found in _COUNT.finditer(text) for at in range(*found.span())}
    for at, in_class in _places(text):
        if not in_class and at not in counts:
            depth += (text[at] == "(") - (text[at] == ")")
            if text[at] == "," and depth <= 0:
                cuts.append(at)
    return [text[a + 1 : b].strip() for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _with_bars(item: str) -> str:
    """Return an item of a comma list with bars for the commas that are left in it, but for those of counts."""
    return re.sub(rf"{_COUNT.pattern}|\s*,\s*", lambda found: found[0] if found[0][0] == "{" else "|", item)


def _places(pattern: str) -> Iterator[tuple[int, bool]]:
    """Yield where an expression's elements begin (what a backslash escapes is none), and whether within a class."""
    at, first = 0, -1  # the first character of the class that is open: a bracket there closes nothing
    while at < len(pattern):
        yield at, first >= 0
        if pattern[at] == "\\":
            at += 1
        elif first < 0 and pattern[at] == "[":
            at += pattern[at + 1 : at + 2] == "^"
            first = at + 1
        elif first >= 0 and pattern[at] == "]" and at > first:
            first = -1
        at += 1
