"""The registry of policies: the only list of their names. A new policy is one file and one row here.

Policies of plug-ins are in it too (``platform.plugins``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from app.platform import plugins
from app.platform.errors import StartupError
from app.policies.base import Chooser, Policy
from app.policies.elimination import LinearElim, SubElim
from app.policies.epsilon_greedy import EpsilonGreedy
from app.policies.igw import InverseGapWeighting
from app.policies.linucb import LinUcb
from app.policies.missing import MissingPolicy
from app.policies.softmax import SoftmaxPolicy
from app.policies.thompson import LinearTs, SubTs

_ROWS: tuple[Chooser, ...] = (
    SubTs(),
    LinearTs(),
    SubElim(),
    LinearElim(),
    SoftmaxPolicy(),
    InverseGapWeighting(),
    EpsilonGreedy(),
    LinUcb(),
)


class Policies(dict[str, Chooser]):
    """The policies by name. A bandit that is stored may have one that is not installed here."""

    def __missing__(self, name: str) -> Chooser:
        return MissingPolicy(name)


def _registry() -> Policies:
    """Our policies, and those of plug-ins. Raises StartupError: one of them breaks the contract."""
    policies = Policies({row.name: row for row in _ROWS})
    extensions = plugins.load("policies", Policy, policies)  # type: ignore[type-abstract]
    for name, policy in extensions.items():
        if getattr(policy, "name", None) != name:
            raise StartupError(f"the policy {name} of a plug-in must have name = {name!r}")
        if not getattr(policy, "summary", ""):
            raise StartupError(f"the policy {name} of a plug-in must have a summary")
        policies[name] = policy
    return policies


POLICIES = _registry()

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(POLICIES)]
