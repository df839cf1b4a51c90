"""Which policies can be evaluated on a log, which decisions have propensities, and which policies can have
them from draws.
"""

from __future__ import annotations

from app.bandits.settings import BanditRecord
from app.platform.errors import Invalid
from app.policies.registry import POLICIES
from app.policies.targets import DrawsLists, Evaluable

DRAWN = '"propensities": "draws"'


def knowing_policies() -> str:
    """In words, what gives decisions propensities."""
    names = ", ".join(name for name, policy in POLICIES.items() if policy.has_propensities)
    return f"{names} and a holdout of random or named arms"


def drawn_policy(record: BanditRecord) -> DrawsLists | None:
    """The policy of a bandit whose lists can be drawn again; None: another one, or with other settings."""
    policy = POLICIES[record.policy]
    return policy if isinstance(policy, DrawsLists) and policy.draws_lists(record) else None


def evaluable_policy(record: BanditRecord) -> Evaluable:
    """The policy of a bandit. Raises Invalid (policy): not to be evaluated on a log."""
    policy = POLICIES[record.policy]
    if not isinstance(policy, Evaluable):
        message = f"{policy.name} cannot be evaluated on a log: {policy.not_evaluated}"
        raise Invalid(message, path=("policy", "policy"))
    return policy


def no_propensities(record: BanditRecord, *, were_drawn: bool) -> str:
    """Why decisions without propensities cannot be used, and what to ask for instead, unless done already."""
    why = f"they have no propensities, which {knowing_policies()} give"
    asks = can_be_drawn(record) and not were_drawn
    return f"{why}; an evaluation with {DRAWN} estimates them" if asks else why


def unknown_past(record: BanditRecord) -> str | None:
    """Why no earlier posterior is known, whatever the log; None: may be known."""
    if record.key_half_life_s is not None:
        return "a half_life_s"
    return None if record.signals is None else "signals"


def can_be_drawn(record: BanditRecord) -> bool:
    """Return whether draws can estimate the propensities of its decisions."""
    return drawn_policy(record) is not None and unknown_past(record) is None


def warnings_of_log(record: BanditRecord) -> list[str]:
    """Warn of missing evaluations on the log of a bandit, if the bandit has one."""
    if record.log is None or POLICIES[record.policy].has_propensities:
        return []
    knowing = f"{knowing_policies()} know theirs"
    if can_be_drawn(record):
        drawn = f"an evaluation estimates them where it is asked for {DRAWN}"
        return [f"in the log of {record.policy} decisions have no propensities ({knowing}): {drawn}"]
    of_holdout = f"only the decisions of its holdout have propensities ({knowing}), and count"
    none = f"no decision has propensities ({knowing}), so no policy can be evaluated on it"
    rest = "reports, exports and explanations work on all of it"
    has_some = record.holdout is not None and not record.holdout.is_of_caller
    return [f"in the log of {record.policy} {of_holdout if has_some else none}; {rest}"]
