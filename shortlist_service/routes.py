"""Calls from outside: a subclass of ``Routes`` with a router.

    from shortlist_service.routes import Bandits, Provided, Response, Routes, StrictModel, json_router, reply

    router = json_router(prefix="/v1/greetings", tags=["greetings"])

    @router.get("/{bandit}")
    async def greet(bandit: str, bandits: Provided[Bandits]) -> Response:
        return reply({"greeting": f"hello, {(await bandits.get(bandit)).name}"})

    class Greetings(Routes):
        router = router
        scopes = {"GET": "read"}

They get API keys, limits, deadlines and strict JSON from the gateway, as every other call. A parameter such
as ``bandits: Provided[Bandits]`` is filled in by its name: also ``catalogues``, ``learners``, ``store``.
"""

from fastapi import Request, Response

from app.api.plugin_routes import Routes
from app.api.strict_json import Provided, StrictModel, json_router, reply
from app.bandits.registry import Bandits
from app.catalogues.catalogues import Catalogues
from app.learning.learners import Learners
from app.storage.store import Store

__all__ = [
    "Bandits",
    "Catalogues",
    "Learners",
    "Provided",
    "Request",
    "Response",
    "Routes",
    "Store",
    "StrictModel",
    "json_router",
    "reply",
]
