"""One description of a call, two clients: what ``Client.x`` returns, ``AsyncClient.x`` gives when awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import MethodType
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
    """A function that has the client do ``how`` with what is described; help() shows the description."""

    @wraps(describe)
    def method(client: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(client, how)(describe(client, *arguments, **options))

    return method
