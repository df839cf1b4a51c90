"""`shortlist evaluate --format`: logs of Vowpal Wabbit and plain tables, against values computed by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.cli import main

pytestmark = pytest.mark.rest

ARMS, EVENTS = 6, 300
DEVICES = ("phone", "desktop")
# Every offered arm is as likely as any other: the value of this policy can be computed by hand.
UNIFORM = '{"policy": "epsilon_greedy", "epsilon": 1.0}'
WITH_CONTEXT = json.dumps(
    {
        "policy": "softmax",
        "temperature": 0.2,
        "context": {"fields": [{"name": "device", "kind": "category", "values": list(DEVICES)}]},
    }
)


def made_events(seed: int = 5) -> list[dict[str, Any]]:
    """Events as any system could have them: offered arms, the chosen one, its probability and reward."""
    rng, events = np.random.default_rng(seed), list[dict[str, Any]]()
    for number in range(EVENTS):
        offered = [f"a{arm}" for arm in rng.permutation(ARMS)[: rng.integers(2, ARMS + 1)]]
        chances = rng.dirichlet(np.ones(len(offered)) * 3)
        at = int(rng.choice(len(offered), p=chances))
        device = DEVICES[int(rng.integers(2))]
        liked = (offered[at] in {"a0", "a1"}) == (device == "phone")
        events.append(
            {
                "time": f"2026-01-01T{number // 60:02}:{number % 60:02}:00.1234567Z",
                "offered": offered,
                "at": at,
                "probability": float(chances[at]),
                "reward": float(rng.random() < (0.8 if liked else 0.2)),
                "device": device,
            }
        )
    return events


def dsjson(event: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "_label_cost": -event["reward"],
        "_label_probability": event["probability"],
        "_label_Action": event["at"] + 1,
        "_labelIndex": event["at"],
        "Timestamp": event["time"],
        "EventId": f"e{number}",
        "a": [event["at"] + 1],
        "p": [event["probability"]],
        "c": {
            "User": {"device": event["device"], "other": 3},
            "_multi": [{"Article": {"id": arm, "topic": "x"}} for arm in event["offered"]],
        },
    }


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "arms.ndjson"
    rows = np.eye(ARMS)
    lines = [json.dumps({"id": f"a{arm}", "features": row.tolist()}) for arm, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_dsjson(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(dsjson(event, number)) + "\n" for number, event in enumerate(events)))
    return path


def evaluated(log: Path, catalogue: Path, policy: str, *options: str) -> dict[str, Any]:
    result = log.with_suffix(".result")
    words = ["evaluate", str(log), "--catalogue", str(catalogue), "--policy", policy, "--json", str(result)]
    assert main([*words, "--learners", "now", *options]) == 0
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def values(result: dict[str, Any]) -> dict[str, float]:
    return {estimate["estimator"]: estimate["value"] for estimate in result["estimates"]}


def test_the_value_of_a_uniform_policy_is_the_one_computed_by_hand(tmp_path: Path, catalogue: Path):
    events = made_events()
    log = write_dsjson(tmp_path / "vw.json", events)
    result = evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson", "--estimators", "ips,snips")
    rewards = np.array([event["reward"] for event in events])
    weights = np.array([1 / len(event["offered"]) / event["probability"] for event in events])
    assert values(result)["ips"] == pytest.approx((weights * rewards).mean())
    assert values(result)["snips"] == pytest.approx((weights * rewards).sum() / weights.sum())
    assert result["logged"]["value"] == pytest.approx(rewards.mean())
    assert result["logged"]["decisions"] == EVENTS


def test_a_table_says_the_same_as_json_lines(tmp_path: Path, catalogue: Path):
    events = made_events()
    log = write_dsjson(tmp_path / "vw.json", events)
    table = tmp_path / "log.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "actions", "action", "probability", "reward", "device"])
        for event in events:
            chosen = event["offered"][event["at"]]
            cells = event["time"], " ".join(event["offered"]), chosen, event["probability"], event["reward"]
            writer.writerow([*cells, event["device"]])
    by_lines = evaluated(log, catalogue, WITH_CONTEXT, "--format", "vw-dsjson")
    by_table = evaluated(table, catalogue, WITH_CONTEXT, "--format", "table")
    assert values(by_table) == pytest.approx(values(by_lines))
    assert not [text for text in by_lines["warnings"] if "quotas" in text]
    # It learns who likes what from the log, which a uniform policy does not.
    assert (
        values(by_lines)["snips"]
        > values(evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson"))["snips"]
    )


def test_rows_that_lack_something_are_named_and_left_out(tmp_path: Path, catalogue: Path):
    events = made_events()[:40]
    good = [dsjson(event, number) for number, event in enumerate(events)]
    bad: list[Any] = [
        {"RewardValue": 1.0, "EventId": "dangling"},
        {**good[0], "_label_probability": 0.0},
        {**good[1], "c": {"_multi": [{"tag": "x"}]}},
        {**good[2], "_outcomes": []},
        {**good[3], "_labelIndex": 99},
        {**good[4], "Timestamp": "yesterday"},
        {**good[5], "c": {"_multi": [{"id": "gone"}]}, "_labelIndex": 0},
        {**good[6], "Timestamp": 10**40, "EventId": "late"},
        [],
    ]
    log = tmp_path / "vw.json"
    log.write_text("".join(json.dumps(line) + "\n" for line in (*good, *bad)) + "no json\n")
    result = evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson")
    assert result["logged"]["decisions"] == len(good)
    warnings = "\n".join(result["warnings"])
    for reason, row in (
        ("1 row has no cost (_label_cost)", 41), ("a probability that is not above 0", 42),
        ("an action without the feature id", 43), ("several slots (_outcomes)", 44),
        ("which action was chosen (_labelIndex)", 45), ("2 rows have a time that cannot be read", 46),
        ("an action that is no arm of the catalogue", 47), ("2 rows are not JSON objects", 49),
    ):  # fmt: skip
        assert reason in warnings
        assert f"the first is row {row}" in warnings


def test_events_that_were_dropped_are_counted_by_those_that_were_kept(tmp_path: Path, catalogue: Path):
    """Nine of ten events without reward are dropped: the value is that of all of them."""
    events = [dsjson(event, number) for number, event in enumerate(made_events())]
    kept = list[dict[str, Any]]()
    for number, event in enumerate(events):
        if event["_label_cost"]:
            kept.append(event)
        elif number % 10 == 0:
            kept.append({**event, "pdrop": 0.9})
    log = tmp_path / "vw.json"
    log.write_text("".join(json.dumps(event) + "\n" for event in kept))
    result = evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson", "--estimators", "ips,snips")
    rewards = np.array([-event["_label_cost"] for event in kept])
    times = np.array([10.0 if "pdrop" in event else 1.0 for event in kept])
    chances = np.array([1 / len(event["c"]["_multi"]) / event["_label_probability"] for event in kept])
    assert result["logged"]["value"] == pytest.approx((times * rewards).sum() / times.sum())
    assert values(result)["ips"] == pytest.approx((times * chances * rewards).sum() / times.sum())
    assert values(result)["snips"] == pytest.approx(
        (times * chances * rewards).sum() / (times * chances).sum()
    )
    assert result["logged"]["decisions"] == len(kept)
    low, high = result["logged"]["interval"]
    assert low < rewards.sum() / EVENTS < high, "the value of the whole log"
    assert result["logged"]["value"] < 0.6 < rewards.mean()
    assert f"{sum(times > 1)} rows stand for others that were dropped (pdrop)" in "\n".join(
        result["warnings"]
    )
    log.write_text("".join(json.dumps({**event, "pdrop": 1.0}) + "\n" for event in kept[:1] + kept))
    with pytest.raises(AssertionError):
        evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson")


def test_events_that_were_not_shown_count_once_they_are_activated(tmp_path: Path, catalogue: Path):
    """With _skipLearn, and no activation in a line of its own or within the event."""
    events = [dsjson(event, number) for number, event in enumerate(made_events()[:60])]
    never = [{**event, "_skipLearn": True, "_label_cost": 0.0} for event in events[:20]]
    later = [{**event, "_skipLearn": True} for event in events[20:30]]
    within = [{**event, "_skipLearn": True, "o": [{"ActionTaken": True}]} for event in events[30:40]]
    shown = [{**event, "_skipLearn": False} for event in events[40:]]
    activations = [{"EventId": event["EventId"], "ActionTaken": True} for event in later]
    log, expected = tmp_path / "vw.json", tmp_path / "shown.json"
    lines = [*never, *later, *within, *shown, *activations]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected.write_text("".join(json.dumps(event) + "\n" for event in events[20:]))
    result = evaluated(log, catalogue, UNIFORM, "--format", "vw-dsjson")
    without = evaluated(expected, catalogue, UNIFORM, "--format", "vw-dsjson")
    assert (result["logged"], result["estimates"]) == (without["logged"], without["estimates"])
    assert result["warnings"][:2] == [
        "20 rows have _skipLearn, and no activation follows: left out, the first is row 1",
        "10 rows are of activations, and no decisions: left out, the first is row 61",
    ]
