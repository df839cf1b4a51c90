"""What belongs to one process: connections, threads and locks, which a child that is forked must not use."""

from __future__ import annotations

import os
from typing import NoReturn
from weakref import WeakSet


class OfOneProcess:
    """Begins anew in a child (``os.fork``, multiprocessing, preloading servers); not pickled."""

    def __init__(self) -> None:
        _ALL.add(self)

    def begin_anew(self) -> None:
        """Called in a child before anything else of it runs, so in its only thread."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"a {name} is not sent to another process: make a {name} in each")


_ALL: WeakSet[OfOneProcess] = WeakSet()


def _begin_anew() -> None:
    for each in list(_ALL):
        each.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)
