"""Items of the API's calls, as the service checks them: for what reads them elsewhere.

    from shortlist_service.bodies import RewardItem

    RewardItem.model_validate_json(b'{"decision": "…", "value": 1}')

What is refused is a ``pydantic.ValidationError``. A time below ``FIRST_MS`` is no time in ms.
"""

from app.api.fields import Identifier
from app.api.observations import ObservationItem
from app.api.rewards import RewardItem
from app.rewards.reward_entries import FIRST_MS

__all__ = ["FIRST_MS", "Identifier", "ObservationItem", "RewardItem"]
