"""Constraints of plug-ins: a bandit names those that its choices keep to, each with its options.

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
    """Refuses choices of bandits that need a plug-in which is not loaded."""

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        if missing := ", ".join(missing_of(request.bandit)):
            raise Unavailable(f"no loaded plug-in provides {missing}, which the bandit needs")
        return View()


def missing_of(bandit: Bandit) -> Sequence[str]:
    """What the choices of a bandit need and no loaded plug-in provides."""
    missing = missing_settings(bandit.record)
    needed = bandit.catalogue.missing_plugin
    return missing if needed is None else [*missing, needed]


def missing_settings(record: BanditRecord) -> Sequence[str]:
    """Of that, what its settings name."""
    missing = [] if record.policy in POLICIES else [f"the policy {record.policy}"]
    if record.constraints is not None:
        missing += [f"the constraint {name}" for name in record.constraints if name not in PLUGIN_CONSTRAINTS]
    return missing


def check_constraints(record: BanditRecord) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with the constraints of a bandit: field and rule."""
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
