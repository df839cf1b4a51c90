"""JSON merge patches (RFC 7396): a body that names what changes, null for what goes back to its default."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import create_model

from app.api.strict_json import StrictModel


def merged(target: Any, patch: Any) -> Any:
    """The target with the patch applied; neither is changed.

    An object is merged member by member and null takes a member away; anything else replaces the target.
    """
    if not isinstance(patch, Mapping):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def patch_model(model: type[StrictModel]) -> type[StrictModel]:
    """A model of the patches of what ``model`` describes: every field may be absent, or null.

    Each field given is held to its own rule; rules between fields hold for what the patch makes.
    """
    hints = get_type_hints(model, include_extras=True)
    fields: dict[str, Any] = {name: (_patched(hints[name]), None) for name in model.model_fields}
    return create_model(f"{model.__name__}Patch", __base__=StrictModel, __doc__=model.__doc__, **fields)


def _patched(hint: Any) -> Any:
    """The type of a patch of one field: also for a field that is an object, or such a one or null."""
    kinds = getattr(hint, "__args__", ()) if not _is_model(hint) else (hint,)
    for kind in kinds:
        if _is_model(kind):
            return patch_model(kind) | None
    return hint | None


def _is_model(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, StrictModel)


def as_json(patch: StrictModel) -> dict[str, Any]:
    """The patch as it was sent."""
    return patch.model_dump(exclude_unset=True)
