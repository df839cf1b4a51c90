"""An OpenAPI document as sorted lines: each call, each field that it takes, each field that it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = Any


def interface_lines(document: Json) -> list[str]:
    """``CALL``, ``CALL takes .a.b`` (``!``: it is required), ``CALL answers .a.b: type`` (but null)."""
    lines: set[str] = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            call = f"{method.upper()} {path}"
            lines.add(call)
            for parameter in operation.get("parameters", []):
                if parameter["in"] != "path":
                    needed = "!" if parameter.get("required") else ""
                    lines.add(f"{call} takes ?{parameter['name']}{needed}")
            for schema in _schemas(operation.get("requestBody", {})):
                lines.update(f"{call} takes {line}" for line in _fields(document, schema, requests=True))
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    for schema in _schemas(answer):
                        lines.update(f"{call} answers {line}" for line in _fields(document, schema))
    return sorted(lines)


def _schemas(content: Json) -> Iterator[Json]:
    for kind, described in content.get("content", {}).items():
        if kind == "application/json":
            yield described["schema"]


def _fields(
    document: Json, schema: Json, place: str = "", above: tuple[str, ...] = (), *, requests: bool = False
) -> Iterator[str]:
    if reference := schema.get("$ref"):
        if reference in above:
            return
        above = (*above, reference)
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    inner = [(place, other) for part in ("anyOf", "oneOf", "allOf") for other in schema.get(part, [])]
    if "items" in schema:
        inner.append((f"{place}[]", schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        inner.append((f"{place}.*", schema["additionalProperties"]))
    if requests:
        words = schema.get("enum", [schema["const"]] if "const" in schema else [])
        yield from (f"{place} = {word}" for word in words)
    elif (kind := schema.get("type", "null")) != "null":
        yield f"{place}: {kind}"
    for name, field in schema.get("properties", {}).items():
        yield f"{place}.{name}{'!' if requests and name in schema.get('required', []) else ''}"
        inner.append((f"{place}.{name}", field))
    for where, other in inner:
        yield from _fields(document, other, where, above, requests=requests)
