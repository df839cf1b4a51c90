"""The calls of the service as Markdown, from the same OpenAPI document that it answers at /openapi.json.

An area of calls is a page. It has the bodies and answers that no other area has; those of several are on the
page ``SHARED``. Links between them lead to an anchor, which the site finds on any page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from app.api.arms import BLOCKS
from app.platform.settings import Settings
from docs.api_examples import Example, by_call
from server.application import create_app

Json = Mapping[str, Any]

SHARED = "shared"
# Numbers of a schema, as they are said.
BOUNDS = {
    "minimum": "at least {:,}",
    "exclusiveMinimum": "more than {:,}",
    "maximum": "at most {:,}",
    "exclusiveMaximum": "less than {:,}",
    "ge": "at least {:,}",
    "gt": "more than {:,}",
    "le": "at most {:,}",
    "lt": "less than {:,}",
    "minItems": "at least {:,} items",
    "maxItems": "at most {:,} items",
    "maxLength": "at most {:,} characters",
}
SHOWN = 2  # examples of a call, of those that do not fail
IDENTIFIER = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"


def document() -> Json:
    """What the application says of itself; nothing is started, and no store is asked."""
    settings = Settings.model_validate({"redis_url": "redis://127.0.0.1:1", "data_dir": "/nowhere"})
    found: Json = create_app(settings).openapi()
    return found


@cache
def pages() -> Mapping[str, str]:
    """Those of the service, made once."""
    return pages_of(document())


def pages_of(api: Json) -> Mapping[str, str]:
    """By the name of each area what its page has: its calls by path, then bodies and answers by name."""
    areas = dict[str, list[tuple[str, str, Json]]]()
    for path, verbs in sorted(api["paths"].items()):
        for verb, operation in verbs.items():
            areas.setdefault(operation["tags"][0], []).append((verb.upper(), path, operation))
    schemas, examples = api["components"]["schemas"], by_call(api["paths"])
    reached = {area: _reached([each for *_, each in calls], schemas) for area, calls in areas.items()}
    areas_of = Counter(name for names in reached.values() for name in names)
    found = dict[str, str]()
    for area, calls in areas.items():
        lines = list[str]()
        for verb, path, operation in calls:
            lines += _call(verb, path, operation)
            lines += _examples(examples[f"{verb} {path}"])
        own = {name: schemas[name] for name in reached[area] if areas_of[name] == 1}
        found[area] = "\n".join([*lines, *_bodies(own)]) + "\n"
    rest = {name: schema for name, schema in schemas.items() if areas_of[name] != 1}
    return {**found, SHARED: "\n".join(_bodies(rest)) + "\n"}


def _reached(value: object, schemas: Json) -> set[str]:
    """The names of the schemas that a part of the document has, however deep."""
    found, left = set[str](), [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            left += each.values()
            name = str(each.get("$ref", "")).rpartition("/")[2]
            if name and name not in found:
                found.add(name)
                left.append(schemas[name])
        elif isinstance(each, list):
            left += each
    return found


def _bodies(schemas: Json) -> Iterator[str]:
    if schemas:
        yield from ("", "## Bodies and answers")
    for name, schema in sorted(schemas.items()):
        yield from _schema(name, schema)


def _call(verb: str, path: str, operation: Json) -> Iterator[str]:
    yield from ("", f"## `{verb} {path}`", "", _prose(operation.get("description", "")), "")
    parameters = operation.get("parameters", [])
    if parameters:
        yield from ("| parameter | in | value |", "|---|---|---|")
        for each in parameters:
            needed = " (required)" if each["required"] else ""
            yield f"| `{each['name']}` | {each['in']} | {_value(each['schema'])}{needed} |"
        yield ""
    body = operation.get("requestBody", {})
    for kind, content in body.get("content", {}).items():
        yield f"- Body, {kind}: {_value(content['schema'])}. {body.get('description', '')}".rstrip()
    for status, answer in sorted(operation["responses"].items()):
        kinds = [_value(content["schema"]) for content in answer.get("content", {}).values()]
        said = "" if status[0] == "2" else f" {_prose(answer['description'])}"
        yield f"- {status}: {' or '.join(dict.fromkeys(kinds)) or 'no body'}.{said}"


def _examples(examples: list[Example]) -> Iterator[str]:
    """Some answers, whole; of errors the line that matters."""
    for example in [example for example in examples if example.status < 400][:SHOWN]:
        yield from ("", "```text", example.request, "```", "")
        if example.headers.get("Content-Type") == BLOCKS:
            yield from ("(its blocks are shown as JSON, one a line, and float32 as lists of numbers)", "")
        yield from (f"answers {example.status}:", "")
        yield from ("```json", example.answer, "```") if example.answer else ("(nothing)",)
    failures = [example for example in examples if example.status >= 400]
    if failures:
        yield from ("", "| typical error | code | detail |", "|---|---|---|")
    for example in failures:
        problem = json.loads(example.answer)
        cells = (
            f"`{' '.join(example.request.split())}`",
            f"{example.status} `{problem['code']}`",
            problem["detail"],
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _schema(name: str, schema: Json) -> Iterator[str]:
    yield from (
        "",
        f"({anchor(name)})=",
        f"### {_title(name)}",
        "",
        _prose(schema.get("description", "")),
        "",
    )
    required = schema.get("required", ())
    yield from ("| field | value | default |", "|---|---|---|")
    for field, value in schema.get("properties", {}).items():
        default = "required" if field in required else _default(value)
        yield f"| `{field}` | {_value(value)} | {default} |"


def _default(schema: Json) -> str:
    return f"`{schema['default']}`" if "default" in schema else ""


def _value(schema: Json) -> str:
    """What a value may be, in words, in one cell of a table."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{_title(name)}](#{anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_value(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f'`"{word}"`' for word in schema.get("enum", [schema.get("const")]))
    if schema.get("pattern") == IDENTIFIER:
        return "[identifier](../api.md#identifiers)"
    kinds = schema.get("type", "anything")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if "items" in schema:
        text = f"list of {_value(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), Mapping) and schema["additionalProperties"]:
        text = f"object of {_value(schema['additionalProperties'])}"
    bounds = [words.format(_short(schema[name])) for name, words in BOUNDS.items() if name in schema]
    return ", ".join([text, *bounds])


def _short(number: float) -> float:
    """Whole numbers without a fraction."""
    return int(number) if number == int(number) else number


def _prose(text: str) -> str:
    """One paragraph; code between single backquotes, as Markdown has it."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).replace("<", "&lt;")


def _title(name: str) -> str:
    """``Page_ArmView_`` is a page of ArmView."""
    return re.sub(r"^Page_(\w+)_$", r"Page of \1", name)


def anchor(name: str) -> str:
    """The anchor of a body or answer."""
    return f"schema-{name.strip('_').replace('_', '-').lower()}"
