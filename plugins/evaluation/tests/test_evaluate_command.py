"""`shortlist evaluate`: the numbers of the service, from exported files, and one line for what is wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from api_client import Api, Json
from app.decision_log.rows import Row
from app.measuring.export import NdjsonEncoder
from server.cli import main
from shortlist_evaluation.log_files import ReadDecisions, rows_of
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = {f"a{number}": row for number, row in enumerate(np.random.default_rng(3).normal(size=(25, 4)))}
LINES = [
    {"id": arm, "features": row.tolist(), "tags": [], "metadata": {"even": number % 2 == 0}}
    for number, (arm, row) in enumerate(ARMS.items())
]
NOW = ("--learners", "now")
CASES: list[tuple[Json, list[Json]]] = [
    ({"policy": "softmax", "temperature": 0.5}, [{"k": 3}, {"filter": {"even": True}, "exclude": ["a2"]}]),
    (
        {"policy": "softmax", "temperature": 0.5, "context": {"dim": 2}},
        [{"context": [0.5, -1.0], "k": 2}, {"context": [1.0, 0.25]}],
    ),
    (
        {"policy": "softmax", "temperature": 0.5, "scope": "per_key"},
        [{"key": "ann"}, {"key": "bob", "k": 2}],
    ),
    (
        {
            "policy": "igw",
            "gamma": 5.0,
            "shortlist": 4,
            "reward": {"aggregate": "sum"},
            "context": {"dim": 3},
            "interactions": 2,
        },
        [{"context": [0.5, -1.0, 0.0]}, {"context": [1.0, 0.0, 2.0]}],
    ),
]


async def logged(api: Api, name: str, settings: Json, asks: list[Json]) -> list[Row]:
    """The log of a bandit whose learners have learned from all of it, and from nothing else."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": 4}, 201)
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": LINES})
    await api.bandit(name, name, log={}, intercept=True, **settings)
    rng = np.random.default_rng(1)
    for number in range(40):
        answer = await api.choose(name, **asks[number % len(asks)])
        for arm in answer["arms"][: number % 3]:
            reward = {"decision": answer["decision"], "arm": arm["id"], "value": round(rng.normal(), 3)}
            await api.reward(reward | ({"reward_id": "r"} if "reward" in settings else {}))
    found: list[Row] = []

    async def written() -> bool:
        found[:] = [msgspec.convert(item, Row) for item in await api.listed(f"/v1/bandits/{name}/log")]
        return len(found) == 40

    await wait_until(written, what="all rows are in the log")
    return found


def write_arms(folder: Path) -> Path:
    path = folder / "arms.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def write_log(rows: list[Row], path: Path) -> Path:
    if path.suffix == ".ndjson":
        path.write_bytes(NdjsonEncoder().add(rows))
        return path
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    from app.measuring.parquet import ParquetEncoder, schema_of  # noqa: PLC0415 - an extra

    encoder = ParquetEncoder(schema_of())
    path.write_bytes(encoder.add(rows) + encoder.end())
    return path


def run(log: Path, arms: Path, policy: Any, *more: str) -> int:
    text = policy if isinstance(policy, str) else json.dumps(policy)
    return main(["evaluate", str(log), "--catalogue", str(arms), "--policy", text, *more])


def assert_close(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_close(mine, theirs)
    else:
        assert one == (pytest.approx(other, rel=1e-9, abs=1e-12) if isinstance(other, float) else other)


@pytest.mark.parametrize(
    ("settings", "asks", "ending"), [*((*case, "ndjson") for case in CASES), (*CASES[-1], "parquet")], ids=str
)
async def test_the_numbers_are_those_of_the_service(
    shared: Api,
    tmp_path: Path,
    settings: Json,
    asks: list[Json],
    ending: str,
):
    name = f"b{CASES.index((settings, asks))}-{ending}"
    rows = await logged(shared, name, settings, asks)
    log, out = write_log(rows, tmp_path / f"log.{ending}"), tmp_path / "out.json"
    sharper = {"temperature": 0.2} if settings["policy"] == "softmax" else {"gamma": 20.0}
    policy = {name: value for name, value in settings.items() if name != "scope"} | sharper | {"ridge": 1}
    asked = asyncio.to_thread(run, log, write_arms(tmp_path), policy, "--json", str(out))
    assert await asked == 0
    theirs = await shared.ok("POST", f"/v1/bandits/{name}/evaluations", {"policy": sharper})
    assert_close(json.loads(out.read_text()), theirs)
    assert theirs["logged"]["decisions"] == 38  # all but the first block
    assert theirs["learners"] == {"when": "before", "begin": "log", "blocks": 20}
    body = {"policy": sharper, "learners": "now"}
    asked = asyncio.to_thread(run, log, tmp_path / "arms.ndjson", policy, "--json", str(out), *NOW)
    assert await asked == 0
    theirs = await shared.ok("POST", f"/v1/bandits/{name}/evaluations", body)
    assert_close(json.loads(out.read_text()), theirs)
    assert theirs["logged"]["decisions"] == 40
    assert theirs["learners"] == {"when": "now", "begin": None, "blocks": 0}


async def test_learners_learn_by_the_places_of_rows_whatever_the_policy_states(shared: Api, tmp_path: Path):
    rows = await logged(shared, "places", {"policy": "softmax", "temperature": 0.5}, [{"k": 2}])
    told = [{"examined": p, "weight": 1.0} for p in (1.0, 0.5)]
    for row in rows:
        row.arms[:] = [msgspec.structs.replace(arm, **own) for arm, own in zip(row.arms, told, strict=True)]
    log, arms, sizes = write_log(rows, tmp_path / "log.ndjson"), write_arms(tmp_path), []
    for p in (0.5, 0.1):
        policy = {"policy": "softmax", "temperature": 0.2, "position": {"examination": [1.0, p]}}
        assert await asyncio.to_thread(run, log, arms, policy, "--json", str(tmp_path / f"{p}.json")) == 0
        estimates = json.loads((tmp_path / f"{p}.json").read_text())["estimates"]
        sizes.append([estimate["effective_sample_size"] for estimate in estimates])
    assert sizes[0] == sizes[1]


async def test_a_learned_prior_is_that_of_the_rows_or_fitted_from_those_before(
    shared: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    settings = {"policy": "softmax", "temperature": 0.5, "ridge": "auto", "arm_effects": "off"}
    rows = await logged(
        shared, "learned", {"scope": "per_key", **settings}, [{"key": f"u{place}"} for place in range(12)]
    )
    await shared.ok("POST", "/v1/bandits/learned/prior/refresh")
    for place in range(12):
        await shared.choose("learned", key=f"u{place}", k=2)
    await shared.app.service.rows.flush()
    items = await shared.listed("/v1/bandits/learned/log")
    rows = [msgspec.convert(item, Row) for item in items]
    kept = await shared.ok("GET", "/v1/bandits/learned/log/priors")
    assert {row.prior_version for row in rows} - {0} <= {item["version"] for item in kept["items"]}
    log, arms, out = write_log(rows, tmp_path / "log.ndjson"), write_arms(tmp_path), tmp_path / "out.json"
    priors = tmp_path / "log.priors.ndjson"
    priors.write_text("".join(json.dumps(item) + "\n" for item in kept["items"]))
    policy = {"prior": "learned", **settings}

    async def support(*more: str) -> Any:
        assert await asyncio.to_thread(run, log, arms, policy, "--json", str(out), *more) == 0
        return json.loads(out.read_text())["support"]

    theirs = await shared.ok("POST", "/v1/bandits/learned/evaluations", {"policy": {}, "learners": "before"})
    assert_close(await support("--priors", str(priors)), theirs["support"])
    assert (await support())["largest_weight"] >= 1.0, "it is fitted from what came before each block"
    others = tmp_path / "others.ndjson"
    away = [item | {"mean": [[9.0] * len(item["mean"][0])]} for item in kept["items"]]
    others.write_text("".join(json.dumps(item) + "\n" for item in away))
    write_log(rows[-12:], log)  # all of them were chosen with a prior, and by nothing else here
    assert await support("--priors", str(others)) != await support("--priors", str(priors))
    capsys.readouterr()
    narrow = {**kept["items"][0], "mean": [[1.0]], "precision": [1.0]}
    good = kept["items"][-1]
    twice = {"mean": 2 * good["mean"], "sizes": 2 * good["sizes"], "residuals": [[1, 0], [0, 1]]}
    for line, reason in {
        "": "has no version",
        "{": "is not a version of a prior",
        '{"version": 1}': "since_ms",
        json.dumps(narrow): "numbers",
        json.dumps(narrow | {"precision": [-1.0]}): "precision",
        json.dumps(good | {"version": "1"}): "$.version",
        json.dumps(good | {"keys": -3}): "$.keys",
        json.dumps(good | {"keys": 0}): "keys",
        json.dumps(good | {"mean": [[1.0], [1.0, 2.0]]}): "mean",
        json.dumps(good | {"mean": [[1e308] * len(good["mean"][0])]}): "mean",
        json.dumps(good | {"precision": [1.0]}): "precision",
        json.dumps(good | twice): "is of 2 signals",
        json.dumps(good | {"residuals": [[0.0]]}): "residuals",
        json.dumps(good | {"variation": -1.0}): "variation",
        json.dumps(good | {"sizes": [[1.0]]}): "$.sizes",
        json.dumps(good | {"sizes": [[1.0, -1.0]]}): "sizes",
        json.dumps(good | {"sizes": [[1.0, 1.0], [1.0, 1.0]]}): "sizes",
        "\n".join(json.dumps(good | {"keys": keys}) for keys in (5, 6)): "other numbers",
    }.items():
        priors.write_text(line + "\n")
        assert await asyncio.to_thread(run, log, arms, policy, "--priors", str(priors)) == 2
        told = line_of(capsys)
        assert str(priors) in told
        assert reason in told, line
    plain = policy | {"prior": "plain"}
    assert await asyncio.to_thread(run, log, arms, plain, "--priors", str(others)) == 2
    assert "--priors: the policy has the prior plain" in line_of(capsys)


@pytest.fixture
async def files(shared: Api, tmp_path: Path) -> tuple[Path, Path, list[Row]]:
    name = tmp_path.name.replace("_", "-")
    rows = await logged(shared, name, {"policy": "softmax", "temperature": 0.5}, [{}])
    return write_log(rows, tmp_path / "log.ndjson"), write_arms(tmp_path), rows


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on standard error, but for what shows how far it is."""
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.endswith(" s")]
    assert len(lines) == 1, lines
    return lines[0]


async def test_a_decision_that_stands_there_twice_counts_once(
    files: tuple[Path, Path, list[Row]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    log, arms, rows = files
    twice, once_out, twice_out = (tmp_path / name for name in ("twice.ndjson", "once.json", "twice.json"))
    twice.write_bytes(log.read_bytes() + NdjsonEncoder().add(rows[:7]))
    for more in ((), NOW):
        assert (
            await asyncio.to_thread(run, log, arms, {"policy": "softmax"}, "--json", str(once_out), *more)
            == 0
        )
        assert "repeat" not in capsys.readouterr().out
        assert (
            await asyncio.to_thread(run, twice, arms, {"policy": "softmax"}, "--json", str(twice_out), *more)
            == 0
        )
        assert "warning: 7 rows repeat a decision of the log: the first" in capsys.readouterr().out
        once, both = (json.loads(path.read_text()) for path in (once_out, twice_out))
        assert both.pop("warnings")[1:] == once.pop("warnings")
        assert both == once


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
async def test_a_long_log_is_read_in_pieces_and_remembers_what_it_has_read(
    files: tuple[Path, Path, list[Row]], tmp_path: Path, ending: str
):
    _, _, rows = files
    many = [
        msgspec.structs.replace(row, decision=f"{row.decision}-{time}") for time in range(80) for row in rows
    ]
    log = write_log([*many, *many[:5], *many[-5:]], tmp_path / f"long.{ending}")
    read = ReadDecisions(recent=100)
    pieces = [*rows_of(log, "log", read=read)]
    assert [row.decision for piece in pieces for row in piece] == [row.decision for row in many]
    assert max(map(len, pieces)) < len(many), "else it is one piece"
    assert (read.decisions, read.repeated, read.differing) == (len(many), 10, 0)
