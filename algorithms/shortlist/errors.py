"""Errors of algorithms, for arguments which break their rules. A message names the argument, never its value.

ValueError
└── InvalidArgument
├── InvalidShape        an array of the wrong shape
├── InvalidParameter    a parameter outside its range
└── NonFinite           NaN or infinity in an array
"""

from __future__ import annotations

from collections.abc import Sequence

Path = tuple[str | int, ...]


class InvalidArgument(ValueError):
    """An argument that breaks its rule.

    ``argument``   its name
    ``paths``      where the rule is broken: ``[("delta",)]``, or ``[("results", 3, "distance"), ...]``
    """

    def __init__(self, message: str, *, argument: str, items: Sequence[Path] = ((),)) -> None:
        """``items``: which parts of the argument are wrong; as a whole where it is left out."""
        super().__init__(message)
        self.argument = argument
        self.paths: list[Path] = [(argument, *item) for item in items]


class InvalidShape(InvalidArgument):
    """An array of the wrong shape."""


class InvalidParameter(InvalidArgument):
    """A parameter outside its range."""


class NonFinite(InvalidArgument):
    """NaN or infinity in an array."""
