"""A policy from outside: a subclass of ``Policy`` with ``name``, ``summary`` and ``rank``.

    from shortlist_service.policies import Candidates, Document, Policy, Posterior, Ranking

    class Greedy(Policy):
        name = "greedy"
        summary = "the arms of largest estimated reward; it never explores"
        proposed = True

        def rank(self, posterior, candidates, k, rng, prepared):
            return Ranking(candidates.search(posterior.theta, k))

It needs nothing for filters, quotas, frequency caps, exclusions and pins, as long as it takes its arms from
``Candidates``. ``Policy`` and ``Policy.rank`` say in their docstrings what each method may do, and when.
Options of its own are a ``Document`` in ``own_options``, and stand under ``options`` of a bandit.
"""

from app.bandits.settings import BanditRecord
from app.catalogues.learner_snapshot import LearnerSnapshot
from app.platform.documents import Document
from app.policies.base import Policy, PolicyDependencies
from app.policies.selection import Candidates, Ranking, ReadSnapshot, SelectionRequest
from app.policies.targets import Pool, Target
from app.policies.warm_up import Covers
from shortlist.linear.ridge import Posterior
from shortlist.types import Rows, TopK

__all__ = [
    "BanditRecord",
    "Candidates",
    "Covers",
    "Document",
    "LearnerSnapshot",
    "Policy",
    "PolicyDependencies",
    "Pool",
    "Posterior",
    "Ranking",
    "ReadSnapshot",
    "Rows",
    "SelectionRequest",
    "Target",
    "TopK",
]
