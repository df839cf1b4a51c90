"""Bandits outside of any store: made of settings as a caller of the API would send them, and arms of a
file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from app.api.bandits import BanditBody, record_of
from app.api.strict_json import invalid
from app.bandits import context as contexts
from app.bandits.bandit import Bandit, bandit_of
from app.bandits.completion import completed, measured
from app.bandits.versions import BanditVersion, version_to_bytes
from app.catalogues.catalogue import Catalogue
from app.platform.errors import Invalid, ShortlistError
from app.policies.registry import POLICIES
from app.records.encoding import ContextRule


def offline_bandit(
    settings: Mapping[str, Any], catalogue: Catalogue, *, has_keys: bool, context_dim: int | None
) -> Bandit:
    """The bandit with these settings. ``context_dim``: of its contexts, where the settings do not say.

    Raises Invalid, in one line with the first wrong setting.
    """
    try:
        scope = "per_key" if has_keys else "global"
        body = BanditBody.model_validate({**settings, "catalogue": catalogue.name, "scope": scope})
    except ValidationError as error:
        raise _named(invalid(error, ())) from None
    record = record_of(body)
    if context_dim is not None and record.context is None:
        record = msgspec.structs.replace(record, context=ContextRule(dim=context_dim))
    snapshot = catalogue.index.snapshot()
    try:
        POLICIES[record.policy].check_arms(record, catalogue)
        record = completed(record, POLICIES, stored=record)  # it is compared, not made
        contexts.check_size(record, snapshot.table.dim)
        record = contexts.with_directions(measured(record, snapshot), snapshot)
    except ShortlistError as error:
        raise _named(error) from None
    version = version_to_bytes(catalogue.uid, BanditVersion(record))
    return bandit_of(catalogue.name, version, catalogue, POLICIES)


def _named(error: ShortlistError) -> Invalid:
    path, text = next(iter(error.errors), ((), error.detail))
    name = ".".join(str(part) for part in path)
    return Invalid(f"{name}: {text}" if name else text)
