"""The one hook through which everything goes that a view of the in-memory cluster does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")
NOTHING: frozenset[str] = frozenset()


class Ask(Protocol):
    """Does an operation, when and if whoever decides about that lets it. The explorer's scheduler is one."""

    def __call__(
        self, what: str, do: Callable[[], T], *, effect: bool = ..., at: str = ..., touches: frozenset[str] = ...,
        check: Callable[[], object] | None = ..., lost: Callable[[], T] = ..., may_be_late: bool = ...,
    ) -> T:  # fmt: skip
        """Return what ``do`` returns.

        :param what: says in words what is done; the same words each time, so that a story can name it.
        :param effect: whether others see it. :param at: role of the cluster. :param touches: see :func:`touching`.
        :param check: a permit, looked at right before.
        :param lost: raises or returns what the client does whose answer is lost.
        :param may_be_late: whether the request may be applied after its client gave up.
        """


def at_once(
    what: str, do: Callable[[], T], *, effect: bool = False, at: str = "", touches: frozenset[str] = NOTHING,
    check: Callable[[], object] | None = None, lost: Callable[[], T] | None = None, may_be_late: bool = False,
) -> T:  # fmt: skip
    """Just do it: the hook of an ordinary test."""
    if check is not None:
        check()
    return do()


def touching(kind: str, *names: str) -> frozenset[str]:
    """Return what an operation touches, as ``acl:TOPIC``; without names: everything of a kind."""
    return frozenset(f"{kind}:{name}" for name in names or ("*",))
