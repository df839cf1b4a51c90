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
as ``bandits: Provided[Bandits]`` is filled in by its name: also ``catalogues``, ``learners``, ``rewards``,
``store``, and what ``Routes.services`` makes. A body is a ``StrictModel``: its docstring says what bounds it.
The types of its fields, such as ``Identifier``, come with their bounds. ``responses=problems(409)`` says in
/openapi.json which errors a call has besides those of every call.

Routes may also speak another protocol below a prefix of their own, such as /personalizer:
``Routes.key_header`` names the header that has their API keys, ``json_router(refuse=...)`` makes the answers
of errors, and ``inner_call`` makes a call of the API with the key of the request.
"""

from fastapi import Query, Request, Response

from app.api.arms import storable
from app.api.catalogues import CatalogueView, answer_of
from app.api.fields import (
    IDENTIFIER,
    AttributesView,
    Cursor,
    Delta,
    Identifier,
    Limit,
    OrZero,
    Page,
    QueryBody,
    Seed,
    Temperature,
    Value,
    Weights,
    page_of,
    span,
)
from app.api.filters import AtMostBody, FilterBody, parsed_filter
from app.api.guard import check_bandit, check_catalogue, key_of
from app.api.imports import BLOCKS_BODY, blocks_of
from app.api.inner_calls import inner_call
from app.api.plugin_routes import RouteDependencies, Routes
from app.api.problems import Part, Problem, document_of, from_path, problems
from app.api.request_limits import MAX_BLOCK_ARMS
from app.api.rewards import ReceiptView, receipt_reply
from app.api.streamed_answers import while_connected
from app.api.strict_json import JSON, SEVERAL_CALLS, Provided, StrictModel, encoded, json_router, reply
from app.bandits.bandit import Bandit
from app.bandits.served_bandits import Bandits
from app.catalogues.catalogues import Catalogues
from app.learners.learners import Learners
from app.moving.moving import Moving
from app.platform.cursors import page_by_name
from app.platform.documents import Answer
from app.platform.ids import is_identifier, refuse_repeats
from app.rewards.rewards import Receipt, Rewards
from app.rewards.warm_start import WarmStart
from app.storage.store import Store

__all__ = [
    "BLOCKS_BODY",
    "IDENTIFIER",
    "JSON",
    "MAX_BLOCK_ARMS",
    "SEVERAL_CALLS",
    "Answer",
    "AtMostBody",
    "AttributesView",
    "Bandit",
    "Bandits",
    "CatalogueView",
    "Catalogues",
    "Cursor",
    "Delta",
    "FilterBody",
    "Identifier",
    "Learners",
    "Limit",
    "Moving",
    "OrZero",
    "Page",
    "Part",
    "Problem",
    "Provided",
    "Query",
    "QueryBody",
    "Receipt",
    "ReceiptView",
    "Request",
    "Response",
    "Rewards",
    "RouteDependencies",
    "Routes",
    "Seed",
    "Store",
    "StrictModel",
    "Temperature",
    "Value",
    "WarmStart",
    "Weights",
    "answer_of",
    "blocks_of",
    "check_bandit",
    "check_catalogue",
    "document_of",
    "encoded",
    "from_path",
    "inner_call",
    "is_identifier",
    "json_router",
    "key_of",
    "page_by_name",
    "page_of",
    "parsed_filter",
    "problems",
    "receipt_reply",
    "refuse_repeats",
    "reply",
    "span",
    "storable",
    "while_connected",
]
