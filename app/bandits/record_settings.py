"""The settings of a record: what may be changed, what only some policies have, and what of them is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from app.bandits.settings import BanditRecord, BanditSettings, Fixed, OfPolicies

_NAMES = BanditRecord.__struct_fields__
_ADDED = frozenset(_NAMES[_NAMES.index("log") + 1 :])
_STORED = msgspec.structs.fields(BanditRecord)  # reads every annotation: milliseconds, for each bandit made
_MARKS = [
    (name, mark)
    for name, hint in get_type_hints(BanditSettings, include_extras=True).items()
    for part in (hint, *get_args(hint))
    for mark in getattr(part, "__metadata__", ())
]
# Why a setting cannot be changed; all others can.
FIXED: Mapping[str, str] = {name: mark.reason for name, mark in _MARKS if isinstance(mark, Fixed)}
# The settings of only some policies, and their defaults.
OF_POLICIES: Mapping[str, object] = {
    field.name: field.default
    for field in _STORED
    if any(name == field.name and isinstance(mark, OfPolicies) for name, mark in _MARKS)
}


def settings_of(record: BanditRecord) -> dict[str, Any]:
    """All settings by name, as documents: what a record has besides is nobody's choice."""
    return {name: getattr(record, name) for name in BanditSettings.__struct_fields__}


def stored_settings(record: BanditRecord) -> dict[str, Any]:
    """The settings to store. A replica of an older version can read them while new settings have their
    defaults.
    """
    fields = ((field, getattr(record, field.name)) for field in _STORED)
    return {field.name: v for field, v in fields if field.name not in _ADDED or v != field.default}
