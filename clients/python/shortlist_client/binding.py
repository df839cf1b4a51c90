"""One description of a call, two clients: what ``Client.x`` returns, ``AsyncClient.x`` gives when awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from shortlist_client.answers import Page
from shortlist_client.exchange import Steps
from shortlist_client.routes import Call

if TYPE_CHECKING:
    from shortlist_client.client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")


class endpoint(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that describes a call, or steps of several; the client that it belongs to performs it."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T] | Steps[T]]) -> None:
        self._describe = describe
        update_wrapper(self, describe)  # type: ignore[arg-type]  # help() shows what is described

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else partial(_perform, client, self._describe)


class every_page(Generic[P, T]):  # noqa: N801 - used as a decorator
    """A method that describes how a page is called for by its cursor; it becomes an iterator of all items."""

    def __init__(
        self, describe: Callable[Concatenate[Any, P], Callable[[str | None], Call[Page[T]]]]
    ) -> None:
        self._describe = describe
        update_wrapper(self, describe)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else partial(_iterate, client, self._describe)


def _perform(client: Any, describe: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return client.perform(describe(client, *arguments, **options))


def _iterate(client: Any, describe: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return client.iterate(describe(client, *arguments, **options))
