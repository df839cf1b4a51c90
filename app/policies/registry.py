"""The registry of policies: the only list of their names. A new policy is one file and one row here.

Policies of plug-ins are there, too (``platform.plugins``).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property
from typing import Any

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


def _registry() -> dict[str, Chooser]:
    """Our policies, and those of plug-ins. Raises StartupError: one of them breaks the contract."""
    policies: dict[str, Chooser] = {row.name: row for row in _ROWS}
    extensions = plugins.load("policies", Policy, policies)  # type: ignore[type-abstract]
    for name, policy in extensions.items():
        if getattr(policy, "name", None) != name:
            raise StartupError(f"the policy {name} of a plug-in must have name = {name!r}")
        if not getattr(policy, "summary", ""):
            raise StartupError(f"the policy {name} of a plug-in must have a summary")
        policies[name] = policy
    return policies


class Policies(MutableMapping[str, Chooser]):
    """The policies by name. A stored bandit may have a policy that is not installed here.

    Plug-ins are loaded at the first look-up: their imports may import this module.
    """

    @cached_property
    def _by_name(self) -> dict[str, Chooser]:
        return _registry()

    def __getitem__(self, name: str) -> Chooser:
        return self._by_name.get(name) or MissingPolicy(name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str, default: Any = None) -> Any:
        return self._by_name.get(name, default)

    def __setitem__(self, name: str, policy: Chooser) -> None:
        self._by_name[name] = policy

    def __delitem__(self, name: str) -> None:
        del self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


POLICIES = Policies()
