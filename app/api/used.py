"""What the settings of a bandit are for one learner, as numbers."""

from __future__ import annotations

from pydantic import BaseModel

from app.services.bandits.bandit import Bandit


class UsedView(BaseModel):
    """``noise`` is the sigma that multiplies widths: 1 where it is not learned. Of elimination
    ``exploration`` is the radius.
    """

    ridge: float
    noise: float
    exploration: float


def used(bandit: Bandit, ridge: float, noise: float) -> dict[str, float]:
    """A ``UsedView``."""
    return {"ridge": ridge, "noise": noise, "exploration": bandit.exploration}
