"""What the token of a decision says. Whether it is genuine only the service knows.

from shortlist_service.tokens import decision_of, raw_of

decision_of(raw_of(choice.decision)).id
"""

from app.rewards.tokens import Decision, decision_of, raw_of

__all__ = ["Decision", "decision_of", "raw_of"]
