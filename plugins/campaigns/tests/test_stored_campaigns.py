"""Campaigns that version 0.1.0 stored go on, and what is stored now looks as it did then.

``version_0_1_0.json`` has what 0.1.0 wrote for a small campaign of every method: its record, its events and
the snapshot after four of them. ``asked`` are the pulls that it asked for next, ``told`` their results, and
``then`` is its state after these. All bytes are in hexadecimal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.records.records import pack, unpack
from app.storage.store import Store
from app.storage.types import UID_LENGTH
from shortlist_campaigns import noisy_centers, slates
from shortlist_campaigns.campaigns import Campaigns
from shortlist_campaigns.fold import CampaignRecord, pack_state, unpack_event, unpack_state
from shortlist_campaigns.noisy_centers import NoisyCenters
from shortlist_campaigns.slates import Slates

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

STORED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("version_0_1_0.json").read_text())
ALGORITHMS: dict[str, Any] = {algorithm.kind: algorithm for algorithm in (Slates(), NoisyCenters())}
methods = pytest.mark.parametrize("old", STORED.values(), ids=STORED)


def unpacked(value: Any, number: Callable[[Any], Any]) -> Any:
    """A packed state with its arrays as lists, and ``number`` of every number."""
    if isinstance(value, dict):
        return {name: unpacked(part, number) for name, part in value.items()}
    if isinstance(value, list) and len(value) == 3 and isinstance(value[2], bytes):
        dtype, shape, data = value
        return dtype, shape, [number(entry) for entry in np.frombuffer(data, dtype).tolist()]
    return number(value)


def about(value: Any) -> Any:
    """A float up to its rounding: another BLAS may round otherwise. Anything else itself."""
    return pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value


def as_it_was(state: bytes) -> Any:
    """A packed state without what came after 0.1.0 and says nothing here: these campaigns had no rules."""
    value = msgspec.msgpack.decode(state)
    if "matroid" in value.get("settings", {}):
        assert value["settings"].pop("matroid") is None
    return value


def assert_same(found: bytes, expected: bytes) -> None:
    one, other = as_it_was(found), msgspec.msgpack.decode(expected)
    assert list(one) == list(other)
    assert unpacked(one, lambda value: value) == unpacked(other, about)


async def written(store: Store, old: dict[str, Any], *, snapshot: bool) -> Campaigns[Any, Any, Any]:
    """Put everything into the store that version 0.1.0 had put there."""
    kind, uid = old["kind"], old["uid"]
    await store.event_logs.create(kind, "c", bytes.fromhex(old["record"]))
    for position, event in enumerate(old["events"]):
        await store.event_logs.append(kind, "c", uid=uid, position=position, event=bytes.fromhex(event))
    if snapshot:
        state = bytes.fromhex(old["snapshot"]["state"])
        await store.event_logs.save_snapshot(
            kind, "c", uid=uid, position=old["snapshot"]["position"], state=state
        )
    return Campaigns(store.event_logs, ALGORITHMS[kind], capacity_bytes=1 << 20)


@methods
@pytest.mark.parametrize("snapshot", [True, False], ids=["from its snapshot", "from its log"])
async def test_it_goes_on_as_it_would_have(store: Store, old: dict[str, Any], snapshot: bool):
    campaigns = await written(store, old, snapshot=snapshot)
    campaign = await campaigns.get("c")
    assert campaign.position == len(old["events"])
    assert campaign.saved == (old["snapshot"]["position"] if snapshot else 0)
    campaign, pulls = await campaigns.ask("c", len(old["asked"]))
    asked = msgspec.json.decode(msgspec.json.encode([astuple(pull) for pull in pulls]))
    assert asked == old["asked"]
    results = [(campaign.pull_id(number), value) for number, value in old["told"]]
    campaign, receipt = await campaigns.tell("c", results)
    assert receipt.observed == len(results)
    assert_same(pack_state(campaign.state), bytes.fromhex(old["then"]))


@methods
def test_parameters_and_states_are_written_as_they_were(old: dict[str, Any]):
    algorithm = ALGORITHMS[old["kind"]]
    record = unpack(bytes.fromhex(old["record"])[UID_LENGTH:], CampaignRecord)
    parameters = unpack(record.parameters, algorithm.parameters)
    came_later = {"rules": None, "catalogue": None, "metadata": None} if old["kind"] == "slates" else {}
    assert msgspec.structs.asdict(parameters) == old["parameters"] | came_later
    assert record == CampaignRecord(old["seed"], pack(parameters))
    for event in map(bytes.fromhex, old["events"]):
        assert pack(unpack_event(event)) == event
    data = bytes.fromhex(old["snapshot"]["state"])
    state = unpack_state(data, algorithm.state)
    assert msgspec.msgpack.encode(as_it_was(pack_state(state))) == data


def test_every_method_is_there():
    assert set(STORED) == {*slates.METHODS, *noisy_centers.METHODS}
