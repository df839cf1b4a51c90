"""Write the types of the Python client from /openapi.json: ``settings.py``, ``answers.py`` and ``bodies.py``.

python clients/python/generate_types.py      (``make client-types``)

Names, fields, types and docstrings are the document's. What follows is what it cannot say: names that users
import, which fields came later, and how a request is split into keyword arguments.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

from app.platform.settings import Settings
from server.application import create_app

FOLDER = Path(__file__).parent / "shortlist_client"
WIDTH = 104  # of a docstring, without its indentation
Schema = dict[str, Any]

# Names of the client where they are not the document's without "View".
NAMES = {
    "AtMostBody": "AtMost", "CatalogueSampleView": "ArmDraws", "CenterCostView": "Cost",
    "CenterGuaranteeView": "Guarantee", "DisplayBody": "Display", "EmbeddingRule": "Embedding",
    "EvaluationJobHead": "EvaluationJob", "EvaluationJobView": "EvaluationResult", "FeaturesRule": "Features",
    "FieldView": "CatalogueField", "FilterView": "UsedFilter", "LearnersUsed": "EvaluationLearners",
    "PropensitiesUsed": "EvaluationPropensities",
    "LogEmbeddingJob": "EmbeddingJob", "LogEmbeddingHead": "EmbeddingJobHead",
    "LogSupport": "Support", "MipsCostView": "Cost", "MipsView": "MipsAnswer", "PolicyEstimate": "Estimate",
    "QueryView": "DistanceQuery", "ReduceRule": "Reduce", "RowView": "LoggedDecision",
    "SampleCostView": "Cost", "SampleView": "Draws", "SlateGuaranteeView": "Guarantee",
    "SlateRulesBody": "SlateRules", "SlateView": "SlateCampaign", "StartedView": "StartedEvaluation",
    "VectorsMipsView": "VectorsAnswer",
}  # fmt: skip
PARENTS = {"Bandit": "Settings", "BanditVersion": "Bandit", "EvaluationResult": "EvaluationJob"}
# Fields that answers of 0.1.0 lacked, by class: they have a default, since the service may be older.
LATER = {
    "ArmEffects": "ages", "Asked": "diverse", "Bandit": "version", "Behaviour": "prior",
    "BanditVersion": "since_ms by", "Barred": "filters arms",
    "Catalogue": "filters", "Estimate": "places", "Evaluation": "support learners propensities complete_from",
    "EvaluationJob": "error", "EvaluationResult": "result",
    "Guardrail": "most least mean interval",
    "Learner": "used",
    "LearnedReward": "examined signal signal_number had space expected effect taught weight age",
    "LearningTerms": "constant match space moves next arm_half_life_s", "Links": "console",
    "LoggedValue": "interval left_out",
    "PriorVersion": "variation sizes history", "Quota": "outstanding signal from",
    "Reduction": "arms share_of_variance overlap_at_10", "SignalReport": "places",
    "Report": "unit decisions as_of_decisions next_look interval_decisions warnings complete_from places",
    "SlateCampaign": "rules catalogue metadata", "Status": "findings plugins store_away_since",
    "Support": "unshown_arms unshown_share", "WeightsEvaluation": "warnings",
}  # fmt: skip
# Defaults that stand for what an older service meant, where None or nothing would not.
DEFAULTS = {
    ("Bandit", "version"): "None", ("BanditVersion", "version"): "None",
    ("LoggedDecision", "barred"): "Barred()", ("LoggedDecision", "candidates"): "()",
    ("Report", "unit"): '"decision"',
    ("Settings", "prior"): '"plain"', ("Settings", "intercept"): "False",
    ("Settings", "arm_effects"): '"off"',
}  # fmt: skip
PLAIN_DEFAULTS = {"int": "0", "float": "0.0"}
ADDED = {
    "Bandit": "    etag: str | None = field(default=None, metadata=HEADER)  # for ``if_match``",
    "Catalogue": '''
    @property
    def given(self) -> int:
        """How many features of an arm are sent, if any are."""
        embedding = None if self.features is None else self.features.embedding
        return self.dim if embedding is None else embedding.dim''',
}
# Fields of answers that have another type here, and what nothing else needs: an error becomes an exception.
KINDS = {("Choices", "results"): "tuple[Choice, ...]"}
UNNEEDED = {"FieldError", "Problem", "RefusedChoiceView"}
# Words that have a name: users annotate with it.
WORDS = {
    "Estimator": ("ips", "snips", "dr"), "ExportFormat": ("ndjson", "parquet"),
    "LearnersThen": ("before", "now"), "MipsMethod": ("bounded_me", "racing", "exact", "hnsw", "adaptive"),
    "Objective": ("inner_product", "nearest"), "Order": ("asc", "desc"),
    "Propensities": ("logged", "draws"), "SampleMethod": ("racing_normal", "racing_ebs", "lil_ucb", "exact"),
}  # fmt: skip
# Fields of requests that take more than their schema says: arrays, and what becomes JSON.
WIDER = {
    "context": "Context | None", "filter": "Filter | None", "log_prior": "Sequence[LogFactor] | Array | None",
    "log_factors": "Sequence[Sequence[LogFactor]] | Array", "reduce": "int | ReduceRule | None",
}  # fmt: skip
QUERIES = {
    "CatalogueQuery": ("get", "/v1/catalogues/{catalogue}"),
    "PageQuery": ("get", "/v1/catalogues"),
    "ArmsQuery": ("get", "/v1/catalogues/{catalogue}/arms"),
    "LogQuery": ("get", "/v1/bandits/{bandit}/log"),
    "LearnedQuery": ("get", "/v1/bandits/{bandit}/log/rewards"),
    "TermsQuery": ("get", "/v1/bandits/{bandit}/log/terms"),
    "LearnersQuery": ("get", "/v1/bandits/{bandit}/learners"),
    "LearnerQuery": ("get", "/v1/bandits/{bandit}/learners/{key}"),
    "PriorQuery": ("get", "/v1/bandits/{bandit}/prior"),
    "ArmEffectsQuery": ("get", "/v1/bandits/{bandit}/arm-effects"),
    "EvaluationQuery": ("post", "/v1/bandits/{bandit}/evaluations"),
    "ReportQuery": ("get", "/v1/bandits/{bandit}/report"),
    "ExportQuery": ("get", "/v1/bandits/{bandit}/log/export"),
    "WaitQuery": ("post", "/v1/rewards"),
    "VectorsMipsQuery": ("post", "/v1/mips"),
    "SampleQuery": ("post", "/v1/sample"),
}
RAW_NEEDS = {"VectorsMipsQuery": {"n", "dim"}, "SampleQuery": {"n", "dim"}}  # of a body that is no JSON
SETTINGS_HEAD = '''"""The settings of a bandit, as /openapi.json says: written by ``make client-types``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict'''
ANSWERS_HEAD = '''"""What the service answers, as /openapi.json says: written by ``make client-types``.

A field that the service does not know yet has a default, and one that this client does not know is ignored:
client and service may be of different versions. ``None`` stands for null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from shortlist_client.settings import RepeatsRule, Settings

T = TypeVar("T")

# Marks a field that is a header of the answer, of the field's name.
HEADER = {"header": True}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list; ``next`` is the cursor of the part after it, None at the end."""

    items: tuple[T, ...]
    next: str | None'''
BODIES_HEAD = '''"""What requests carry, as /openapi.json says: written by ``make client-types``.

They are the keyword arguments of the calls; the settings of a bandit are in ``settings``. A field that is
absent has the service's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, Required, TypedDict

from shortlist_client.settings import BanditPatch, EncodedField


class Array(Protocol):
    """A numpy array, or whatever else can become a list."""

    def tolist(self) -> Any: ...


Vector = Sequence[float] | Array
Vectors = Sequence[Vector] | Array
Filter = Mapping[str, Any]
LogFactor = float | Literal["-Infinity"] | None
Context = Sequence[float] | Array | Mapping[str, float | str | Sequence[str] | None]'''


class Generator:
    """The modules, from a document."""

    def __init__(self, document: Schema) -> None:
        self.document = document
        self.schemas: dict[str, Schema] = document["components"]["schemas"]

    def modules(self) -> dict[str, str]:
        """The text of each module, by the name of its file."""
        parts = {
            "settings.py": self.settings(),
            "answers.py": [ANSWERS_HEAD, *self.answers()],
            "bodies.py": [BODIES_HEAD, *self.bodies()],
        }
        return {name: "\n\n\n".join(each) + "\n" for name, each in parts.items()}

    def settings(self) -> Iterator[str]:
        bandit, patch = self.schemas["BanditBody"], self.schemas["BanditPatch"]
        words = bandit["properties"]["policy"]["enum"]
        self.words = {tuple(words): "Policy"}
        yield f"{SETTINGS_HEAD}\n\nPolicy = {literal(words)}"
        rules = [name for name in self.reached(bandit) if name != "BanditBody"]
        for name in rules:
            yield self.typed_dict(name, self.schemas[name])
        yield "ContextField = EncodedField  # its name before it was of arms too"
        yield self.typed_dict("BanditBody", bandit | {"description": ""})
        for name in self.reached(patch):
            if name.endswith("Patch") and name != "BanditPatch":
                yield self.typed_dict(name, self.schemas[name] | {"description": ""})
        yield self.typed_dict("BanditPatch", patch | {"description": ""})
        lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", "class Settings:"]
        about = "As they are answered. A service that lacks one acts by its default; words may be new."
        lines += docstring({"description": about})
        for name, schema in bandit["properties"].items():
            kind = self.kind(schema, is_answer=False)
            kind = re.sub(r"Literal\[\d[^]]*\]", "int", kind)
            kind = re.sub(r"Literal\[[^]]*\]|^Policy$", "str", kind)
            default = schema.get("default", None if "None" in kind else ...)
            text = DEFAULTS.get(("Settings", name)) or ("" if default is ... else text_of(default))
            lines.append(f"    {name}: {kind}" + (text and f" = {text}"))
        yield "\n".join(lines)

    def answers(self) -> Iterator[str]:
        groups = dict[str, list[Schema]]()
        for name in self.answered():
            groups.setdefault(NAMES.get(name, name.removesuffix("View")), []).append(self.schemas[name])
        for known, (schema, *others) in groups.items():
            yield self.answer(known, widest(schema, others))

    def answer(self, name: str, schema: Schema) -> str:
        parent, later = PARENTS.get(name), LATER.get(name, "").split()
        taken = self.fields_of_parent(parent)
        needed, optional = [], []
        for shown, of in schema["properties"].items():
            if shown in taken:
                continue
            kind = KINDS.get((name, shown)) or self.kind(of, is_answer=True)
            attribute = {"from": "from_ms" if name == "Bucket" else "from_"}.get(shown, shown)
            if shown in schema.get("required", ()) and shown not in later:
                more = ' = field(metadata={"name": "from"})' if attribute != shown else ""
                needed.append(f"    {attribute}: {kind}{more}")
                continue
            default = DEFAULTS.get((name, shown)) or default_of(of, kind)
            kind = f"{kind} | None" if default == "None" and "None" not in kind else kind
            if attribute != shown:
                default = f'field(default={default}, metadata={{"name": "{shown}"}})'
            optional.append(f"    {attribute}: {kind} = {default}")
        only = ", kw_only=True" if name in {"Bandit", "BanditVersion"} else ""
        lines = [
            f"@dataclass(frozen=True, slots=True{only})",
            f"class {name}{f'({parent})' if parent else ''}:",
        ]
        return "\n".join([*lines, *docstring(schema), *needed, *optional, *filter(None, [ADDED.get(name)])])

    def fields_of_parent(self, parent: str | None) -> Collection[str]:
        if parent is None:
            return ()
        if parent == "Settings":
            return set(self.schemas["BanditBody"]["properties"])
        name = {"EvaluationJob": "EvaluationJobHead"}.get(parent, f"{parent}View")
        return set(self.schemas[name]["properties"])

    def answered(self) -> list[str]:
        """The schemas of answers, each after those that it has; without pages, and settings of bandits."""
        found = dict[str, None]()
        for _, operation in self.operations():
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
                    found |= dict.fromkeys(self.reached(schema))
        settings = {*self.reached(self.schemas["BanditBody"]), "BanditBody"} - {"EncodedField"}
        pages = {name for name in found if self.schemas[name]["properties"].keys() == {"items", "next"}}
        return [name for name in found if name not in settings | pages | UNNEEDED]

    def bodies(self) -> Iterator[str]:
        self.words = {words: name for name, words in WORDS.items()}
        for words, name in self.words.items():
            yield f"{name} = {literal(words)}"
        settings = {*self.reached(self.schemas["BanditPatch"]), "BanditBody", "BanditPatch"}
        settings |= set(self.reached(self.schemas["BanditBody"]))
        late = list[str]()
        for name, schema in self.requested().items():
            if name in settings or not schema["properties"]:
                continue
            for part in self.body(name, schema):
                if "TypedDict(\n" in part:
                    late.append(part)  # they are evaluated, so after what they have
                else:
                    yield part
        yield from late
        for name, (method, path) in QUERIES.items():
            given, needed = self.document["paths"][path][method]["parameters"], RAW_NEEDS.get(name, set())
            fields = {each["name"]: each["schema"] for each in given if each["in"] == "query"}
            for each, of in fields.items():  # None is as absent
                fields[each] = {"anyOf": [*of.get("anyOf", [of]), {"type": "null"}]}
            fields |= {each: {"type": "integer"} for each in needed}
            yield self.typed_dict(name, {"properties": fields, "required": needed}, wider=True)

    def body(self, name: str, schema: Schema) -> Iterator[str]:
        """One class, or what the calls of the client divide it into."""
        item = self.schemas["ChooseItem"]
        if name == "ChooseBody":  # a dry run takes no more than a choice, and answers something else
            yield self.typed_dict("DryRunBody", schema, "DryRunRequest", item["properties"], wider=True)
        elif name == "ChooseItem":
            own = {"event_id", "activate"}
            yield self.typed_dict("DryRunRequest", schema, without=own, wider=True)
            rest = item["properties"].keys() - own
            yield self.typed_dict("ChooseBody", item | {"description": ""}, "DryRunRequest", rest, wider=True)
        elif name == "PageItem":
            yield self.typed_dict(name, schema, "ChooseBody", item["properties"], wider=True)
        elif name == "PolicyBody":
            yield self.typed_dict(
                name, schema, "BanditPatch", self.schemas["BanditPatch"]["properties"], wider=True
            )
        else:
            yield self.typed_dict(name, schema, wider=True)

    def requested(self) -> dict[str, Schema]:
        """The schemas of bodies in JSON, each after those that it has."""
        found = dict[str, Schema]()
        for _, operation in self.operations():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            found |= {name: self.schemas[name] for name in self.reached(schema)}
            if "properties" in schema:
                found[schema["title"]] = schema
        return {"ChooseItem": self.schemas["ChooseItem"], **found}  # before what extends it

    def typed_dict(
        self,
        name: str,
        schema: Schema,
        base: str = "TypedDict",
        without: Collection[str] = (),
        *,
        wider: bool = False,
    ) -> str:
        fields = dict[str, str]()
        for each, of in schema["properties"].items():
            if each not in without:
                kind = self.kind(of, is_answer=False, arrays=wider)
                kind = WIDER.get(each, kind) if wider else kind
                fields[each] = f"Required[{kind}]" if each in schema.get("required", ()) else kind
        if word := next(filter(iskeyword, fields), None):
            notes = [*wrapped(schema), f'"{word}" cannot be the name of a field of a class.']
            about = "".join(f"# {line}".rstrip() + "\n" for line in notes)
            lines = [f'"{each}": {kind},' for each, kind in fields.items()]
            return f'{about}{name} = TypedDict(\n"{name}",\n{{{" ".join(lines)}}},\ntotal=False,\n)'
        is_whole = False
        if base == "TypedDict" and fields.keys() == set(schema.get("required", ())):
            fields = {each: kind[len("Required[") : -1] for each, kind in fields.items()}
            is_whole = True  # then each is marked by the class
        lines = [f"class {name}({base}{'' if is_whole else ', total=False'}):", *docstring(schema)]
        return "\n".join([*lines, *(f"    {each}: {kind}" for each, kind in fields.items())])

    def kind(self, schema: Schema, *, is_answer: bool, arrays: bool = False) -> str:  # noqa: PLR0911
        """A type as the client writes it. ``arrays``: those of numbers may be numpy's."""
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            if not is_answer:
                return {"ChooseItem": "ChooseBody"}.get(name, name)
            return NAMES.get(name, name.removesuffix("View"))
        if "anyOf" in schema:
            kinds = [self.kind(each, is_answer=is_answer, arrays=arrays) for each in schema["anyOf"]]
            kinds = [each for each in dict.fromkeys(kinds) if not (each == "int" and "float" in kinds)]
            return " | ".join(sorted(kinds, key=lambda kind: kind == "None"))
        if words := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
            return type(words[0]).__name__ if is_answer else self.words.get(tuple(words), literal(words))
        match schema.get("type"):
            case "array" if "prefixItems" in schema and is_answer:
                items = (self.kind(each, is_answer=True) for each in schema["prefixItems"])
                return f"tuple[{', '.join(items)}]"
            case "array":
                item = self.kind(schema.get("items", {}), is_answer=is_answer, arrays=arrays)
                if is_answer:
                    return f"tuple[{item}, ...]"
                known = {"float": "Vector", "Vector": "Vectors"} if arrays else {}
                return known.get(item, f"Sequence[{item}]")
            case "object":
                (values,) = schema.get("patternProperties", {"": schema.get("additionalProperties")}).values()
                value = self.kind(values, is_answer=is_answer) if isinstance(values, dict) else "Any"
                return f"Mapping[str, {value}]"
        plain = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}
        return plain.get(str(schema.get("type")), "Any")  # where there are several types, WIDER says it

    def reached(self, schema: Any) -> dict[str, None]:
        """The names of the schemas that one has, however deep, each after its own."""
        found = dict[str, None]()
        if isinstance(schema, Mapping):
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                found |= self.reached(self.schemas[name])
                found[name] = None
            for each in schema.values():
                found |= self.reached(each)
        elif isinstance(schema, list):
            for each in schema:
                found |= self.reached(each)
        return found

    def operations(self) -> Iterator[tuple[str, Schema]]:
        for path, operations in self.document["paths"].items():
            yield from ((path, operation) for operation in operations.values())


def default_of(schema: Schema, kind: str) -> str:
    """What an optional field of an answer is where it is absent."""
    if schema.get("default"):
        return text_of(schema["default"])
    if "None" in kind:
        return "None"
    if kind.startswith("tuple"):
        return "()"
    return "False" if kind == "bool" else PLAIN_DEFAULTS.get(kind, "None")


def widest(schema: Schema, others: Collection[Schema]) -> Schema:
    """One for several schemas of the same fields: each field as the one says it that allows most."""
    all_of = [schema, *others]
    fields = {
        name: max((each["properties"][name] for each in all_of), key=lambda of: len(of.get("anyOf", ())))
        for name in schema["properties"]
    }
    if any(each["properties"].keys() != fields.keys() for each in others):
        raise ValueError(f"one class for schemas of other fields: {[each['title'] for each in all_of]}")
    return {**schema, "properties": fields}


def literal(words: Any) -> str:
    return f"Literal[{', '.join(map(json.dumps, words))}]"


def text_of(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def docstring(schema: Schema) -> list[str]:
    lines = wrapped(schema)
    if not lines:
        return []
    if len(lines) == 1 and len(lines[0]) <= WIDTH - 6:
        return [f'    """{lines[0]}"""', ""]
    first = [f'    """{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:])]
    return [*first, '    """', ""]


def wrapped(schema: Schema) -> list[str]:
    """The description, None for null, in lines of some length; tables in it stay as they are."""
    text = re.sub(r"\bnull\b", "None", schema.get("description", "")).replace("Null unless", "None unless")
    result = list[str]()
    for paragraph in filter(None, text.strip().split("\n\n")):
        lines = paragraph.splitlines()
        is_table = any("  " in line.strip() for line in lines)
        result += ["", *(lines if is_table else textwrap.wrap(" ".join(lines), WIDTH - 3))]
    return result[1:]


def generated() -> dict[Path, str]:
    """The text of each file."""
    application = create_app(
        Settings.model_validate({"redis_url": "redis://127.0.0.1:1", "data_dir": "/nowhere"})
    )
    modules = Generator(application.openapi()).modules()
    return {FOLDER / name: formatted(FOLDER / name, text) for name, text in modules.items()}


def formatted(path: Path, text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
