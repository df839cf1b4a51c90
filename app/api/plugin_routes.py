"""Routes of plug-ins: they have the same gateway as ours, and need the scopes which they declare."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter

from app.api import documentation
from app.api.api_keys import SCOPES, OtherProtocol, open_path, open_protocol
from app.api.strict_json import JsonRoute
from app.bandits.served_bandits import Bandits
from app.catalogues.blocked_copies import BlockedCopies
from app.catalogues.catalogues import Catalogues
from app.decision_log.reading import DecisionLog
from app.filtering.filtered_snapshots import FilteredSnapshots
from app.learners.learners import Learners
from app.platform import plugins
from app.platform.errors import StartupError
from app.platform.settings import Settings
from app.rewards.rewards import Rewards
from app.rewards.warm_start import WarmStart
from app.storage.event_logs import EventLogs

if TYPE_CHECKING:  # a policy of a plug-in may import the door of routes, and is loaded before these
    from app.decision_log.reading import DecisionLog
    from app.learners.learned_priors import LearnedPriors
    from app.learners.served_effects import ServedEffects
    from app.measuring.jobs import Jobs
    from app.moving.moving import Moving
    from app.platform.metrics import Metrics
    from app.selection.covers import Covers
    from app.serving.constraints.base import ConstraintRow
    from app.storage.store import Store

PREFIX = "/v1/"
# Calls on bandits and catalogues: a caller who may not see one is told that none exists.
OF_OURS = frozenset({"/v1/bandits/{bandit}", "/v1/catalogues/{catalogue}"})


@dataclass(frozen=True, slots=True, eq=False)
class RouteDependencies:
    """The parts of which objects of routes are made.

    ``event_logs``  their storage: see ``EventLogs``
    ``filtered``    the arms of a catalogue matched by a filter
    ``copies``      blocked copies of catalogues, for races over coordinates
    ``warm_start``  gives a learner the rewards found elsewhere
    ``priors``      versions of learned priors, and ``effects`` of arm effects
    ``covers``      of the arms, which some policies draw from
    ``constraints`` of choices, and when each applies
    ``jobs``        work without a waiting client
    ``moving``      moves bandits to other catalogues
    """

    settings: Settings
    store: Store
    event_logs: EventLogs
    bandits: Bandits
    catalogues: Catalogues
    filtered: FilteredSnapshots
    copies: BlockedCopies
    learners: Learners
    rewards: Rewards
    warm_start: WarmStart
    decision_log: DecisionLog
    priors: LearnedPriors
    effects: ServedEffects
    covers: Covers
    constraints: Sequence[ConstraintRow]
    jobs: Jobs
    moving: Moving
    metrics: Metrics


class Routes:
    """Calls that a plug-in adds.

    ``router``    of ``json_router``, with a new prefix below ``/v1/``: API keys of some bandits
                  or catalogues cannot use it (404), nor can passes (403). Or with the prefix
                  ``/v1/bandits/{bandit}`` or ``/v1/catalogues/{catalogue}`` and new paths: such keys can use
                  them for their own. Or, with ``key_header``, any other prefix of one part
    ``key_header``  the header with the key of calls in another protocol, such as
                    ``Ocp-Apim-Subscription-Key``. They call the API by ``inner_call``, which checks the
                    rights of the key
    ``scopes``    the scope of a call: of "POST /{name}/ask", a method and a path below the prefix, or of
                  "POST", the method; calls without a name need ``admin``
    ``examples``  of bodies in /openapi.json, by method and path likewise
    """

    router: ClassVar[APIRouter]
    key_header: ClassVar[str | None] = None
    scopes: ClassVar[Mapping[str, str]] = {"GET": "read"}
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:  # noqa: ARG002
        """Make the objects for the calls, asked for by ``Provided``, by the name of the parameter.

        Called once a process, before the store is open. Objects with a ``close`` are closed when the service
        ends. ``baseline`` of choices reads an ``ArmList`` among them, ``BackgroundWork`` runs until the end.
        """
        return {}


def load(taken_paths: Collection[str]) -> dict[str, Routes]:
    """The routes of plug-ins. ``taken_paths``: our paths. Raises StartupError: one breaks the contract."""
    routes = plugins.load("routes", Routes)
    paths = {*taken_paths}
    prefixes = {path.split("/")[2 if path.startswith(PREFIX) else 1] for path in paths}
    owners = {each: plugin.name for plugin in plugins.plugins() for each in plugin.provides}
    for name, plugin_route in routes.items():
        where = f"the routes {name} of the plug-in {owners[f'routes:{name}']}"
        if not isinstance(getattr(plugin_route, "router", None), APIRouter):
            raise StartupError(f"{where} need a router of json_router")
        prefix = plugin_route.router.prefix
        parent = "/" if plugin_route.key_header else PREFIX
        is_new = prefix.startswith(parent) and "/" not in prefix.removeprefix(parent)
        if prefix not in OF_OURS and (not is_new or prefix.removeprefix(parent) in prefixes):
            raise StartupError(f"{where} need a prefix of one part that is not taken, such as {parent}{name}")
        calls = [route for route in plugin_route.router.routes if isinstance(route, JsonRoute)]
        if len(calls) < len(plugin_route.router.routes):
            raise StartupError(f"{where} must be of json_router")
        if plugin_route.key_header and not calls:
            raise StartupError(f"{where} have a key_header and no call")
        if any(_overlap(route.path, path) for route in calls for path in paths):
            raise StartupError(f"{where} have a path that is taken")
        if unknown := sorted({*plugin_route.scopes.values()} - {*SCOPES}):
            raise StartupError(f"{where} need scopes that there are not: {', '.join(unknown)}")
        prefixes.add(prefix.removeprefix(parent))
        if plugin_route.key_header:
            key_header = plugin_route.key_header.lower().encode("ascii")
            open_protocol(prefix, OtherProtocol(key_header, calls[0].refuse))
        paths.update(route.path for route in calls)
        for route in calls:
            for method in (route.methods or set()) - {"HEAD"}:
                call = f"{method} {route.path.removeprefix(prefix)}".rstrip()
                open_path(
                    method,
                    route.path,
                    plugin_route.scopes.get(call) or plugin_route.scopes.get(method, "admin"),
                )
                if call in plugin_route.examples:
                    documentation.EXAMPLES[method, route.path] = dict(plugin_route.examples[call])
    return routes


def _overlap(path: str, other: str) -> bool:
    """Return whether a request may be for both: their parts are equal, or one of them is a parameter."""
    parts, others = path.split("/"), other.split("/")
    pairs = zip(parts, others, strict=False)
    return len(parts) == len(others) and all(a == b or "{" in a or "{" in b for a, b in pairs)
