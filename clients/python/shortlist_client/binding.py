"""One description of a call, two clients: what ``Client.x`` returns, ``AsyncClient.x`` gives when awaited."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from types import MethodType, ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from shortlist_client.answers import Page
from shortlist_client.exchange import Steps
from shortlist_client.routes import Call

P = ParamSpec("P")
T = TypeVar("T")


class Waiting:
    """Marks a client whose methods wait for the answer."""

    __slots__ = ()


class Awaited:
    """Marks a client whose methods are awaited."""

    __slots__ = ()


class endpoint(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that describes a call, or steps of several; the client that it belongs to performs it."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T] | Steps[T]]) -> None:
        self._method = _method("perform", describe)

    @overload
    def __get__(self, client: Waiting, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self._method if client is None else MethodType(self._method, client)


class every_page(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that describes how a page is called for by its cursor; it becomes an iterator of all items."""

    def __init__(
        self, describe: Callable[Concatenate[Any, P], Callable[[str | None], Call[Page[T]]]]
    ) -> None:
        self._method = _method("iterate", describe)

    @overload
    def __get__(self, client: Waiting, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self._method if client is None else MethodType(self._method, client)


def _method(how: str, describe: Callable[..., Any]) -> Callable[..., Any]:
    """A function that has the client do ``how`` with what is described; help() shows the description, with
    every field of a request by its name.
    """

    @wraps(describe)
    def method(client: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(client, how)(describe(client, *arguments, **options))

    method.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return method


class _Absent:
    """The default of a field that need not be given: the service's, which ``bodies`` does not repeat."""

    def __repr__(self) -> str:
        return "..."


_ABSENT = _Absent()


def _signature(describe: Callable[..., Any]) -> Signature:
    """That of a method: ``**request: Unpack[bodies.X]`` as a keyword argument for each field of X, and the
    answer in place of the call that brings it.
    """
    known = signature(describe)
    parameters = dict[str, Parameter]()
    for name, parameter in known.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            fields = _fields(str(parameter.annotation), sys.modules[describe.__module__])
            parameters |= {each.name: each for each in fields if each.name not in parameters}
        else:
            parameters[name] = parameter
    answer = re.sub(r"^Callable\[.*Page\[(\w+)\]\]\]$", r"Iterator[\1]", str(known.return_annotation))
    answer = re.sub(r"^(?:Call|Steps)\[(.*)\]$", r"\1", answer)
    return known.replace(parameters=list(parameters.values()), return_annotation=answer)


def _fields(annotation: str, module: ModuleType) -> Iterator[Parameter]:
    """The fields of ``Unpack[bodies.X]`` as keyword arguments, those first that are needed; without those
    whose names are words of Python, such as ``from``.
    """
    kind: Any = module
    for part in annotation.removeprefix("Unpack[").removesuffix("]").split("."):
        kind = getattr(kind, part)
    found = list[Parameter]()
    for name, hint in kind.__annotations__.items():
        text = getattr(hint, "__forward_arg__", None) or str(hint)
        shown = re.sub(r"^(?:typing\.)?Required\[(.*)\]$", r"\1", text)
        is_needed = kind.__total__ or shown != text
        if not iskeyword(name):
            default = Parameter.empty if is_needed else _ABSENT
            found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=shown))
    yield from sorted(found, key=lambda each: each.default is _ABSENT)
