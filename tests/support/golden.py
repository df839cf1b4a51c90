"""What others rely on, as text that is easy to compare: the HTTP interface, keys of the store, records.

    python tests/support/golden.py     writes tests/golden/ again (``make golden``)

Names of modules, classes and functions are not in it, but for those by which the document names its shapes,
nor is any prose: all of that may change.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import struct
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

import app
import shortlist.index
import shortlist_campaigns
import shortlist_embeddings
import shortlist_evaluation
import workers
from app.api import api_keys
from app.bandits import effect_version, prior_version, settings, spaces, versions
from app.engines import engine_index
from app.exposure_limits import rules
from app.filters import columns
from app.indexes import publishing, shared_files
from app.learners import one_key_teaches
from app.measuring import jobs
from app.records import (
    age_sums,
    arm_sums,
    behaviour,
    encoding,
    features,
    history_prior,
    kept_choice,
    log_entries,
    logged,
    logged_candidates,
    place_sums,
    records,
)
from app.rewards import tokens
from app.storage import redis_keys
from app.storage.embedded import losses
from app.storage.types import DecisionId, LearnerId
from openapi_document import openapi_document
from shortlist.index import (
    arm_index,
    arrays,
    graph_file,
    hnsw,
    inverted_file,
    planner,
    probes,
    shared_format,
)
from shortlist_campaigns import fold as campaign_records
from shortlist_campaigns import noisy_centers, slates
from shortlist_embeddings import jobs as embedding_jobs

FOLDER = Path(__file__).parents[1] / "golden"
PROGRAMS = {"run_engine", "launch_server"}  # they are run, never imported
UID = "0123456789abcdef"

# Every record that is stored, or that a token carries, by a name that stays.
RECORDS: dict[str, type] = {
    "catalogue": records.CatalogueRecord,
    "catalogue, features": features.FeaturesRule,
    "catalogue, features, embedding": features.EmbeddingRule,
    "catalogue, features, reduce": features.ReduceRule,
    "catalogue, reduction": features.Reduction,
    "catalogue, behaviour": behaviour.BehaviourRecord,
    "catalogue, prior": history_prior.HistoryPriorRecord,
    "embedding that was asked for": embedding_jobs.AskedEmbedding,
    "arm": records.ArmDocument,
    "arm before its catalogue is fitted": records.UnfittedArmDocument,
    "log entry, reward": log_entries.RewardEntry,
    "log entry, state": log_entries.StateEntry,
    "log entry, forget": log_entries.ForgetEntry,
    "log entry, move": log_entries.MoveEntry,
    "waiting decision": log_entries.WaitingDecision,
    "decision": tokens.Decision,
    "visitor pass": api_keys.VisitorPass,
    "decision, part for the log": logged.LogPart,
    "decision, request": logged.LoggedRequest,
    "decision, candidates": logged_candidates.LoggedCandidates,
    "reward of a row": logged.RewardOfRow,
    "choice of an event": kept_choice.KeptChoice,
    "bandit": settings.BanditRecord,
    "bandit, settings": settings.BanditSettings,
    "bandit, reward": settings.RewardRule,
    "bandit, half-lives": settings.HalfLives,
    "bandit, clock of arms": arm_sums.ArmClock,
    "bandit, signal": settings.SignalRule,
    "bandit, position": settings.PositionRule,
    "bandit, log": settings.LogRule,
    "bandit, holdout": settings.HoldoutRule,
    "bandit, holdout, arms": settings.ServedArms,
    "bandit, guardrail": settings.GuardrailRule,
    "bandit, repeats": settings.RepeatsRule,
    "bandit, context": encoding.ContextRule,
    "bandit, match": encoding.MatchRule,
    "encoded field": encoding.EncodedField,
    "bandit, version": versions.BanditVersion,
    "bandit, move": spaces.MoveRecord,
    "learned prior": prior_version.PriorRecord,
    "sums of an arm": arm_sums.ArmSums,
    "merged sums of an arm": arm_sums.MergedSums,
    "arm effects": effect_version.EffectRecord,
    "arm effects, places": effect_version.PlaceFit,
    "arm effects, ages": effect_version.AgeFit,
    "sums of places": place_sums.PlaceSums,
    "sums of ages": age_sums.AgeSums,
    "one key teaches": one_key_teaches.OneKeyTeaches,
    "quota": rules.QuotaRule,
    "campaign": campaign_records.CampaignRecord,
    "campaign, asked": campaign_records.PullsAsked,
    "campaign, told": campaign_records.ResultsTold,
    "campaign of centers": noisy_centers.CenterParameters,
    "campaign of slates": slates.SlateParameters,
    "campaign of slates, rules": slates.SlateRules,
    "campaign of slates, at most": slates.AtMostRule,
    "copy in an engine": engine_index.CopyQuality,
    "evaluation": jobs.JobHead,
    "evaluation, progress": jobs.JobProgress,
    "loss": losses.Loss,
    "shared file": shared_format.Packed,
    "shared array": shared_format.ArrayPlace,
    "shared arms": shared_files.Arms,
    "shared attributes": shared_files.Attributes,
    "shared attributes, block": columns.ColumnBlock,
    "shared attributes, column": columns.Column,
    "shared attributes, strings": arrays.MappedStrings,
    "shared index": publishing.SavedSearch,
    "shared index, graph": graph_file.SavedGraph,
    "shared index, tuning": hnsw.GraphTuning,
    "shared index, plan": planner.Plan,
    "quality": probes.Quality,
    "index of the library": arm_index.SavedIndex,
    "index of the library, lists": inverted_file.SavedLists,
}
# What stays in the memory of a process, or is an answer: its fields may change.
NOT_STORED = {
    "_Activation", "Job", "_Told",
    "Access", "ActivationView", "Agreement", "Allowed", "Answer", "Applied", "Arm", "ArmRevision",
    "ArmsOfBehaviour", "EmbeddingHead", "JudgedLog", "JudgingTask", "LogEmbedding",
    "Bandit", "Barred",
    "Block", "Bucket", "Candidates", "Choice", "ChooseRequest", "ChosenArm",
    "ConstantSnapshot", "Document", "Drawn", "DryRun", "DryRunArm", "EvaluationJob",
    "ExposuresView", "ExposureView", "FieldError", "FieldSummary", "FilterStatus",
    "LearnedMoveView", "LearnedPageView", "LearnedReward",
    "LearningTermsView", "LoggedArm", "LoggedCandidate", "LoggedReward", "LogRecord", "PolicyNeeds",
    "PolicyView", "PriorVersionsView", "PriorVersionView", "Problem", "PullsView", "PullView", "QueriesView",
    "QueryView", "QuotaState", "RankedCandidate",
    "Ranking", "ReadSnapshot", "ReceiptView", "RefusedChoice", "RejectedView", "ReportedMove",
    "RevisionsView", "Row", "ThinnedRow",
    "Selection", "SelectionRequest", "Sets", "Shown", "SignedChoice", "SlateToldView", "Stage",
    "UnlistedValues", "UsedScales", "View",
}  # fmt: skip


def modules() -> Iterator[types.ModuleType]:
    """Every module of the service, and those of the library that write files."""
    for package in (
        app,
        shortlist.index,
        shortlist_campaigns,
        shortlist_embeddings,
        shortlist_evaluation,
        workers,
    ):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.split(".")[-1] not in PROGRAMS:
                yield importlib.import_module(found.name)


def unlisted() -> set[str]:
    """The encodable classes of the service that are in neither list above."""
    listed = set(RECORDS.values())
    found = {kind for module in modules() for kind in vars(module).values() if _is_record(kind)}
    return {kind.__name__ for kind in found if kind not in listed} - NOT_STORED


def _is_record(kind: object) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__.split(".")[0]
        in {
            "app",
            "shortlist",
            "shortlist_campaigns",
            "shortlist_embeddings",
            "shortlist_evaluation",
            "workers",
        }
    )


def stored_records() -> dict[str, Any]:
    """The fields of each record with their types, in the order in which they are stored."""
    found: dict[str, Any] = {}
    for name, kind in RECORDS.items():
        hints = typing.get_type_hints(kind)
        shape = "object"
        if issubclass(kind, msgspec.Struct):
            config = kind.__struct_config__
            shape = "array" if config.array_like else "object"
            shape += f", tagged {config.tag}" if config.tag else ""
            named = {field.encode_name: field for field in msgspec.structs.fields(kind)}
            lines = [
                f"{key}{'' if field.required else '?'}: {_type(hints[field.name])}"
                for key, field in named.items()
            ]
        else:
            names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
            lines = [f"{field}: {_type(hints[field])}" for field in names]
        found[name] = {"as": shape, "fields": lines}
    found["binary numbers"] = sorted(
        {
            value.format
            for module in modules()
            for value in vars(module).values()
            if isinstance(value, struct.Struct)
        }
    )
    return found


def _type(hint: Any) -> str:
    """A type as text, which names records as ``RECORDS`` does."""
    names = {kind: name for name, kind in RECORDS.items()}
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is np.ndarray:
        text = "<shared array>"
    elif origin is typing.Annotated:
        text = _type(inside[0])
    elif origin in {types.UnionType, typing.Union}:
        text = " | ".join(map(_type, inside))
    elif origin is Literal:
        text = " | ".join(map(json.dumps, inside))
    elif origin is not None:
        text = f"{origin.__name__}[{', '.join(map(_type, inside))}]"
    else:
        text = {type(None): "null", ...: "..."}.get(hint) or str(hint.__name__)
    return f"<{names[hint]}>" if hint in names else text


LEARNER = LearnerId(UID, "<learner>")
# Arguments of the functions that name keys, by the type that they ask for, or by name where they have none.
EXAMPLES = {
    "partition": 7,
    "uid": UID,
    "int": 7,
    "int | None": 7,
    "str": "<text>",
    "LearnerId": LEARNER,
    "LearnerId | None": LEARNER,
    "DecisionId": DecisionId(LEARNER, "<decision>"),
}


def store_keys() -> dict[str, list[str]]:
    """The table of keys, what the functions that name them answer, and the names that scripts use."""
    rows = re.findall(
        r"^    (\{\S+\}:\S+(?: \w+>\S*)*)\s+(string|hash|zset|set|stream|list) ",
        redis_keys.__doc__ or "",
        re.MULTILINE,
    )
    return {
        "table": sorted(f"{name} {kind}" for name, kind in rows),
        "named": sorted({name for each in vars(redis_keys) for name in _names(each)}),
        "in scripts": sorted(word for word in _script_words() if not re.fullmatch("[A-Z]+", word)),
    }


def _names(attribute: str) -> list[str]:
    """The keys, fields and patterns that a constant is or that a function answers, with examples."""
    value = None if attribute.startswith("_") else getattr(redis_keys, attribute)
    if isinstance(value, types.FunctionType) and value.__module__ == redis_keys.__name__:
        asked = inspect.signature(value).parameters.values()
        kinds = [each.name if each.annotation is each.empty else str(each.annotation) for each in asked]
        value = value(*map(EXAMPLES.__getitem__, kinds)) if kinds and EXAMPLES.keys() >= set(kinds) else None
    found = value if isinstance(value, list) else [value]
    return [name for name in found if isinstance(name, str) and re.search(r"shortlist3:|[a-z]+:<", name)]


def _script_words() -> set[str]:
    """Texts that the scripts pass to commands, or that they put together with others."""
    found = set[str]()
    for path in sorted(Path(app.__path__[0]).rglob("*.lua")):
        source = re.sub(r"--[^\n]*", "", path.read_text())
        for call in re.finditer(r"redis\.p?call\(", source):
            found |= set(re.findall(r"'([^']*)'", _inside(source, call.end())))
        found |= set(re.findall(r"\.\. *'([^']*)'", source)) | set(re.findall(r"'([^']*)' *\.\.", source))
    return found


def _inside(source: str, start: int) -> str:
    """The text up to the bracket that closes the one before ``start``."""
    depth = 1
    for found in re.compile(r"'[^']*'|[()]").finditer(source, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if not depth:
            return source[start : found.start()]
    raise ValueError("a bracket is not closed")


def http_interface() -> dict[str, Any]:
    """Of each call its parameters, the fields of its body, and of each status those of the answer."""
    document = openapi_document()
    found: dict[str, Any] = {}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            found[f"{method.upper()} {path}"] = {
                "parameters": sorted(_parameter(each) for each in call.get("parameters", ())),
                "body": _contents(call["requestBody"]) if "requestBody" in call else [],
                "answers": [
                    f"{code} {line}"
                    for code, answer in sorted(call["responses"].items())
                    for line in _contents(answer) or ["nothing"]
                ],
                "needs a key": call.get("security", []) not in ([], [{}]),
            }
    names = _referenced(document["paths"])
    schemas = document["components"]["schemas"]
    return {
        "calls": dict(sorted(found.items())),
        "shapes": {name: list(_fields(schemas[name])) for name in sorted(names)},
    }


def _referenced(document: object) -> set[str]:
    """Names of the schemas that a part of the document leads to."""
    schemas = openapi_document()["components"]["schemas"]
    found, left = set[str](), set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    while left:
        found |= left
        inside = json.dumps([schemas[name] for name in left])
        left = set(re.findall(r'"#/components/schemas/([^"]+)"', inside)) - found
    return found


def _parameter(parameter: Mapping[str, Any]) -> str:
    needed = "" if parameter.get("required") else "?"
    return f"{parameter['in']} {parameter['name']}{needed}: {_schema(parameter['schema'])}"


def _contents(message: Mapping[str, Any]) -> list[str]:
    """The media types of a body or an answer, each with what it holds, and the headers."""
    needed = "?" if message.get("required") is False else ""
    lines = [
        f"{kind}{needed}: {_schema(content.get('schema', {}))}"
        for kind, content in sorted(message.get("content", {}).items())
    ]
    headers = sorted(message.get("headers", {}).items())
    return lines + [f"header {name}: {_schema(header.get('schema', {}))}" for name, header in headers]


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    """A line for each field of an object, in the order of their names; one line for what is none."""
    if "properties" not in schema:
        yield _schema(schema)
        return
    needed = set(schema.get("required", ()))
    for name, inside in sorted(schema["properties"].items()):
        yield f"{name}{'' if name in needed else '?'}: {_schema(inside)}"
    yield f"others: {_schema(schema.get('additionalProperties', True))}"


PROSE = {"title", "description", "example", "examples", "summary"}


def _schema(schema: Any) -> str:
    """A schema on one line, without prose."""
    written = json.dumps(_bare(schema), sort_keys=True, ensure_ascii=False)
    return re.sub(r'\{"\$ref": "#/components/schemas/([^"]+)"\}', r"<\1>", written).replace('"', "'")


def _bare(schema: Any, *, named: bool = False) -> Any:
    """``named``: the keys are names of fields, not words of the schema."""
    if isinstance(schema, dict):
        kept = schema if named else {key: value for key, value in schema.items() if key not in PROSE}
        return {key: _bare(value, named=not named and key == "properties") for key, value in kept.items()}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


PARTS: dict[str, Callable[[], Any]] = {
    "http": http_interface,
    "keys": store_keys,
    "records": stored_records,
}


def text(part: str) -> str:
    """The contents of the file of a part."""
    return json.dumps(PARTS[part](), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for part in PARTS:
        (FOLDER / f"{part}.json").write_text(text(part), "utf-8")
