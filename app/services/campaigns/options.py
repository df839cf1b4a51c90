"""The options of an algorithm, taken from what a campaign was made with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


def options_of(parameters: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """The values of those fields of the parameters that an algorithm has options for, by ``names``."""
    known = set(names)
    return {name: getattr(parameters, name) for name in parameters.__struct_fields__ if name in known}
