"""Write ``shortlist_client/settings.py``, the settings of a bandit, from the service's definition of them.

python clients/python/generate_settings.py      (``make client-types``)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from app.api.bandits import FIELDS
from app.bandits.settings import (
    ExploreRule,
    GuardrailRule,
    HoldoutRule,
    LogRule,
    PositionRule,
    RepeatsRule,
    RewardRule,
    ServedArms,
    SignalRule,
)
from app.platform.documents import fields_of
from app.records.encoding import ContextRule, EncodedField

TARGET = Path(__file__).parent / "shortlist_client" / "settings.py"
RULES = (
    RewardRule,
    ExploreRule,
    EncodedField,
    ContextRule,
    ServedArms,
    HoldoutRule,
    LogRule,
    RepeatsRule,
    SignalRule,
    GuardrailRule,
    PositionRule,
)
# Of the others: the whole.
PATCHED = (RewardRule, ExploreRule, HoldoutRule, LogRule, RepeatsRule, SignalRule, PositionRule)
NAMES_PATCHED = {rule.__name__ for rule in PATCHED}
HEAD = '''"""The settings of a bandit, as the service defines them: written by ``make client-types``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict
'''


def generated() -> str:
    """The text of the module."""
    names = ", ".join(map(json.dumps, get_args(FIELDS["policy"][0])))
    parts = [HEAD + f"\nPolicy = Literal[\n    {names}\n]"]
    parts += [typed_dict(rule.__name__, fields_of(rule), rule.__doc__) for rule in RULES]
    parts.append("ContextField = EncodedField  # its name before it was of arms too")
    parts.append(typed_dict("BanditBody", FIELDS))
    parts += [patch(f"{rule.__name__}Patch", fields_of(rule)) for rule in PATCHED]
    return "\n\n\n".join([*parts, patch("BanditPatch", FIELDS), answer()]) + "\n"


def typed_dict(name: str, fields: dict[str, Any], about: str | None = None) -> str:
    lines = [f"class {name}(TypedDict, total=False):", *([f'    """{about}"""\n'] if about else [])]
    for field, (hint, default) in fields.items():
        kind = text(hint)
        lines.append(f"    {field}: " + (f"Required[{kind}]" if default is ... else kind))
    return "\n".join(lines)


def patch(name: str, fields: dict[str, Any]) -> str:
    """All may be absent, or None; of the fields of a rule too."""
    lines = [f"class {name}(TypedDict, total=False):"]
    for field, (hint, _) in fields.items():
        kind = text(hint).removesuffix(" | None")
        named = re.fullmatch(r"Mapping\[str, (\w+)\]", kind)
        if named and named[1] in NAMES_PATCHED:
            kind = f"Mapping[str, {named[1]}Patch | None]"
        lines.append(f"    {field}: {kind}{'Patch' if kind in NAMES_PATCHED else ''} | None")
    return "\n".join(lines)


def answer() -> str:
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", "class Settings:"]
    lines.append(
        '    """As they are answered. A service that lacks one acts by its default; words may be new."""\n'
    )
    for field, (hint, default) in FIELDS.items():
        kind = re.sub(r"Literal\[[^]]*\]|^Policy$", "str", text(hint))
        is_plain = default is None or isinstance(default, str | int | float)
        value = json.dumps(default) if isinstance(default, str) else default
        lines.append(f"    {field}: {kind}" + (f" = {value}" if is_plain else ""))  # others must be there
    return "\n".join(lines)


def text(hint: Any) -> str:  # noqa: PLR0911 - one for each kind of type
    """A type as the client writes it."""
    arguments, origin = get_args(hint), get_origin(hint)
    if origin is Annotated:
        return text(arguments[0])
    if origin in {Union, UnionType}:
        return " | ".join(map(text, arguments))
    if hint == FIELDS["policy"][0]:
        return "Policy"
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, arguments))}]"
    if origin is list:
        return f"Sequence[{text(arguments[0])}]"
    if origin is dict:
        return f"Mapping[str, {text(arguments[1])}]"
    return "None" if hint is NoneType else str(hint.__name__)


if __name__ == "__main__":
    TARGET.write_text(generated())
