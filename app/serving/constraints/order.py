"""The constraints of all choices, in the order in which a choice asks them, and when each applies.

Each sees the arms left by those before, so constraints which may leave out a pin stand behind ``Pins``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from app.bandits.bandit import Bandit
from app.exposure_limits.caps import FrequencyCaps
from app.exposure_limits.quotas import Quotas
from app.replication.sync import Sync
from app.selection.request import ChooseRequest
from app.serving.constraints.base import Constraint, ConstraintRow
from app.serving.constraints.frequency_caps import FrequencyCapConstraint
from app.serving.constraints.quotas import QuotaConstraint
from app.serving.constraints.requested import (
    AtMostRules,
    DistinctRows,
    Exclusions,
    Filters,
    Pins,
)

STATELESS: Sequence[ConstraintRow] = (
    ConstraintRow(
        Filters(), lambda choice, bandit: choice.arm_filter is not None or bandit.arm_filter is not None
    ),
    ConstraintRow(Exclusions(), lambda choice, _: bool(choice.exclude)),
    ConstraintRow(DistinctRows(), lambda choice, _: bool(choice.shown)),
    ConstraintRow(AtMostRules(), lambda choice, _: bool(choice.rules.at_most)),
)
"""Those that need nothing of the process: evaluations ask them too."""


def constraints_of(
    sync: Sync, caps: FrequencyCaps, quotas: Quotas, missing: Constraint, of_plugins: Mapping[str, Constraint]
) -> Sequence[ConstraintRow]:
    """All constraints of choices. ``missing``: refuses bandits whose plug-in is not loaded.

    ``of_plugins``: by the names by which settings ask for them.
    """
    return (
        # For a missing policy its own stand-in says so.
        ConstraintRow(
            missing, lambda _, bandit: bool(bandit.record.constraints or bandit.catalogue.missing_plugin)
        ),
        *STATELESS,
        ConstraintRow(Pins(sync), lambda choice, _: bool(choice.rules.pins)),
        ConstraintRow(
            FrequencyCapConstraint(caps),
            lambda choice, bandit: bandit.record.repeats is not None or choice.visitor is not None,
        ),
        *(ConstraintRow(constraint, partial(_is_asked_for, name)) for name, constraint in of_plugins.items()),
        ConstraintRow(QuotaConstraint(quotas), lambda _, bandit: bandit.uid in quotas.of),
    )


def _is_asked_for(name: str, _: ChooseRequest, bandit: Bandit) -> bool:
    return bandit.record.constraints is not None and name in bandit.record.constraints
