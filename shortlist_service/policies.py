"""A policy from outside: a subclass of ``Policy`` with ``name``, ``summary`` and ``rank``.

    from shortlist_service.policies import Candidates, Policy, PolicyNeeds, Ranking

    class Greedy(Policy):
        name = "greedy"
        summary = "the arms of largest estimated reward; it never explores"
        needs = PolicyNeeds(arms_in_memory=False)

        def rank(self, posterior, candidates, k, rng, prepared):
            hits = candidates.search(posterior.theta, k)
            return Ranking(hits)

It needs nothing for filters, quotas, frequency caps, exclusions and pins, as long as it takes its arms from
``Candidates``. ``Policy`` and ``Policy.rank`` say in their docstrings what each method may do, and when.
Options of its own are a ``Document`` in ``own_options``, and stand under ``options`` of a bandit.

What else it can do it says by contracts. One that extends ``Evaluable`` too has a ``target``: then a log
tells what it would have earned. One that extends ``StatefulPolicy`` in place of ``Policy`` gets in ``rank``
what it remembers of the learner. The methods of ``Exploring``, which each policy has, say what "auto" means.
"""

from app.bandits.bandit import Bandit
from app.bandits.completion import PolicyNeeds
from app.bandits.settings import BanditRecord
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.platform.documents import Document
from app.policies.base import Exploring, Policy, PolicyDependencies
from app.policies.stateful import StatefulPolicy
from app.policies.targets import DrawsLists, Evaluable, EvaluationBatch, Lists, Pool, Target, Weighed
from app.policies.thompson import ThompsonTarget
from app.selection.arm_effects import ArmEffects, Directions
from app.selection.covers import Covers
from app.selection.selection import Candidates, Ranking, ReadSnapshot, SelectionRequest
from shortlist.linear.ridge import Posterior
from shortlist.types import Rows, TopK

__all__ = [
    "ArmEffects",
    "Bandit",
    "BanditRecord",
    "Candidates",
    "Covers",
    "Directions",
    "Document",
    "DrawsLists",
    "Evaluable",
    "EvaluationBatch",
    "Exploring",
    "LearnerSnapshot",
    "Lists",
    "Policy",
    "PolicyDependencies",
    "PolicyNeeds",
    "Pool",
    "Posterior",
    "Ranking",
    "ReadSnapshot",
    "Rows",
    "SelectionRequest",
    "StatefulPolicy",
    "Target",
    "ThompsonTarget",
    "TopK",
    "Weighed",
]
