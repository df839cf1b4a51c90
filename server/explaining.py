"""`shortlist explain`: why a decision showed these arms, as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from app.platform.command_line import table
from shortlist_client import Client

Json = Mapping[str, Any]

REASONS = {
    "bandit": "the bandit's version of that time is no longer kept",
    "request": "the request was too large to be logged",
    "prior": "the prior of that time is not known any more",
    "effects": "the arm effects of that time are no longer kept",
    "learner": "the learner was rewarded since",
    "catalogue": "the catalogue was changed since",
    "barred": "which arms quotas and frequency caps did not allow is not known any more",
    "candidates": "the candidates of the request are not kept",
}


def explain(client: Client, bandit: str, decision: str) -> str:
    """The text about one logged decision of a bandit, by its token. Raises what the client raises."""
    explanation = asdict(client.explain(bandit, decision))
    return "\n".join(_lines(bandit, explanation))


def _lines(bandit: str, explanation: Json) -> Iterator[str]:
    row, asked = explanation["row"], explanation["asked"]
    when = datetime.fromtimestamp(row["time"] / 1_000, UTC).isoformat(timespec="milliseconds")
    key = "" if row["key"] is None else f", key {row['key']}"
    group = "" if row["group"] is None else f", group {row['group']}"
    yield f"bandit {bandit}{key}: decided at {when} by {row['policy']}{group}"
    names = ("bandit_version", "learner_version", "catalogue_version")
    yield ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in names)
    for name in ("context", "filter", "eligible"):
        if row[name] is not None:
            yield f"{name}: {json.dumps(row[name])}"
    if asked is None:
        yield "asked for: too much to be kept"
    else:
        count = f"asked for: {asked['k']} arm" + "s" * (asked["k"] != 1)
        others = {name: value for name, value in asked.items() if name != "k" and value}
        yield ", ".join([count, *(f"{name} {json.dumps(value)}" for name, value in others.items())])
    if row["candidates"] != ():
        named = row["candidates"]
        yield "among: " + ("candidates that are not kept" if named is None else f"{len(named):,} candidates")
    yield f"seed {explanation['seed']}, " + ("of the request" if explanation["seeded"] else "drawn")
    if explanation["repeated"] is None:
        changed = "; ".join(REASONS.get(name, name) for name in explanation["changed"])
        yield f"not made again: {changed}"
    else:
        yield "made again from the seed: " + ("the same" if explanation["repeated"] else "another choice")
    yield ""
    yield table([_arm(arm, row["rewards"]) for arm in row["arms"]])
    if explanation["candidates"]:
        yield ""
        yield "candidates, of highest estimate first:"
        candidates = explanation["candidates"]
        yield table(
            [{name: candidate[name] for name in candidate if name != "because"} for candidate in candidates]
        )
        for candidate in candidates:
            if candidate.get("because"):
                parts = ", ".join(f"{part['arm']} +{part['share']:.3g}" for part in candidate["because"])
                yield f"{candidate['id']} is shown because of {parts}"


def _arm(arm: Json, rewards: Sequence[Json]) -> dict[str, Any]:
    came = [
        f"{reward['value']:g}" + " (default)" * reward["default"]
        for reward in rewards
        if reward["arm"] == arm["id"]
    ]
    shown = {name: arm[name] for name in ("place", "id", "score", "propensity")}
    return {**shown, "pinned": "yes" if arm["pinned"] else None, "rewards": ", ".join(came) or None}
