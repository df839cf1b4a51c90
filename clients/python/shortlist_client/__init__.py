"""The Python client of Shortlist: ``Client`` and ``AsyncClient``.

client = Client("http://127.0.0.1:8080")
choice = client.choose("home", key="user-42")
client.reward(choice.decision, value=1.0)
"""

from shortlist_client.client import VERSION, AsyncClient, Client
from shortlist_client.errors import ShortlistError
from shortlist_client.exchange import Retry
from shortlist_client.passes import visitor_pass
from shortlist_client.sending import AsyncRewardSender, RewardSender

__version__ = VERSION
__all__ = [
    "AsyncClient",
    "AsyncRewardSender",
    "Client",
    "Retry",
    "RewardSender",
    "ShortlistError",
    "visitor_pass",
]
