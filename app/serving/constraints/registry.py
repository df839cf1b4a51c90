"""The constraints of choices: their order, and when each has a say. To add one: a file, and a row here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.bandits.bandit import Bandit
from app.caps.quotas import Quotas
from app.replication.sync import Sync
from app.serving.constraints.base import Constraint, ConstraintFields
from app.serving.constraints.frequency_caps import FrequencyCaps
from app.serving.constraints.quotas import QuotaConstraint
from app.serving.constraints.requested import AtMostRules, Exclusions, Filters, Pins


class Row(NamedTuple):
    """A constraint, and whether it has a say in a choice of a bandit: asked for every choice."""

    constraint: Constraint
    applies: Callable[[ConstraintFields, Bandit], bool]


class Constraints:
    """All constraints, in the order in which a choice asks them.

    Each sees what those before it left: those that may leave out a pin stand behind ``Pins``.
    """

    def __init__(self, sync: Sync, caps: FrequencyCaps, quotas: Quotas) -> None:
        self.rows: Sequence[Row] = (
            Row(
                Filters(),
                lambda choice, bandit: choice.arm_filter is not None or bandit.arm_filter is not None,
            ),
            Row(Exclusions(), lambda choice, _: bool(choice.exclude)),
            Row(AtMostRules(), lambda choice, _: bool(choice.rules.at_most)),
            Row(Pins(sync), lambda choice, _: bool(choice.rules.pins)),
            Row(
                caps,
                lambda choice, bandit: bandit.record.repeats is not None or choice.visitor is not None,
            ),
            Row(QuotaConstraint(quotas), lambda _, bandit: bandit.uid in quotas.shares),
        )

    def of(self, choice: ConstraintFields, bandit: Bandit) -> Sequence[Constraint]:
        """Those that have a say in a choice."""
        return [constraint for constraint, applies in self.rows if applies(choice, bandit)]
