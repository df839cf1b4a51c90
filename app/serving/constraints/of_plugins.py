"""Constraints of plug-ins: a bandit names the constraints of its choices, each with its options.

"constraints": {"fresh": {"days": 30}}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord
from app.platform import plugins
from app.platform.documents import errors_of
from app.platform.errors import FieldPath, Unavailable
from app.policies.registry import POLICIES
from app.selection.request import ChooseRequest
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint, View
from app.serving.constraints.plugin_constraint import PluginConstraint


class Missing(Constraint):
    """Refuses choices of bandits whose plug-in is not loaded."""

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        if missing := ", ".join(missing_of(request.bandit)):
            raise Unavailable(f"no loaded plug-in provides {missing}, which the bandit needs")
        return View()


def missing_of(bandit: Bandit) -> Sequence[str]:
    """The needs of a bandit's choices which no loaded plug-in provides."""
    missing = missing_settings(bandit.record)
    needed = bandit.catalogue.missing_plugin
    return missing if needed is None else [*missing, needed]


def missing_settings(record: BanditRecord) -> Sequence[str]:
    """The missing parts named by the settings."""
    missing = [] if record.policy in POLICIES else [f"the policy {record.policy}"]
    if record.constraints is not None:
        missing += [f"the constraint {name}" for name in record.constraints if name not in PLUGIN_CONSTRAINTS]
    return missing


def check_constraints(record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
    """The errors of a bandit's constraints: field and rule."""
    for name, options in (record.constraints or {}).items():
        if name not in PLUGIN_CONSTRAINTS:
            yield ("constraints", name), "no loaded plug-in provides a constraint of this name"
        else:
            yield from errors_of(PLUGIN_CONSTRAINTS[name].own_options, options, ("constraints", name))


def _load() -> dict[str, PluginConstraint]:
    constraints = plugins.load("constraints", PluginConstraint)  # type: ignore[type-abstract]
    for name, constraint in constraints.items():
        constraint.name = name
    return constraints


PLUGIN_CONSTRAINTS = _load()
