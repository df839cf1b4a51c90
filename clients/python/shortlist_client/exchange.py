"""What is sent when, and what an answer means; without sending anything.

``exchanges`` is a generator. It yields what is to be done next, a ``Call`` to send or a ``Pause`` to make,
and is given the response, or the error in its place. A synchronous and an asynchronous client are two ways
to do what it says.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import httpx

from shortlist_client.errors import (
    ConnectionFailed,
    ShortlistError,
    TimedOut,
    TooManyRequests,
    UnexpectedAnswer,
    problem_error,
)
from shortlist_client.routes import NEVER, Call

T = TypeVar("T")
Steps = Generator[Call[Any], Any, T]

PROBLEM = "application/problem+json"
TRY_LATER = frozenset({429, 502, 503, 504})
GONE = 404
# The request was not sent: whatever it is, it may be sent again.
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Pause(NamedTuple):
    seconds: float


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a call that failed is sent again.

    Before each new attempt it waits between half and all of ``first_wait_s``, which doubles every time up to
    ``longest_wait_s``, and besides for what the service asks for in Retry-After. If that is longer than
    ``longest_wait_s``, the call fails at once. ``attempts`` 1: nothing is sent again. After ``total_s`` no
    further attempt begins. By default the pauses add up to 6 to 13 s: a service that starts is waited for.
    """

    attempts: int = 8
    first_wait_s: float = 0.1
    longest_wait_s: float = 10.0
    total_s: float = 30.0

    def pause(self, failures: int, retry_after_s: float, elapsed_s: float) -> Pause | None:
        """The pause after so many failures; None when it is to be given up."""
        late = elapsed_s > self.total_s
        if failures >= self.attempts or late or retry_after_s > self.longest_wait_s:
            return None
        most = min(self.first_wait_s * 2.0 ** (failures - 1), self.longest_wait_s)
        return Pause(retry_after_s + random.uniform(most / 2.0, most))  # noqa: S311 - so that clients spread


def exchanges(plan: Call[T] | Steps[T], url: str, retry: Retry) -> Generator[Call[Any] | Pause, Any, T]:
    """All that a call, or a function of several calls, comes to."""
    if isinstance(plan, Call):
        return (yield from _attempts(plan, url, retry))
    try:
        call = next(plan)
        while True:
            try:
                answer = yield from _attempts(call, url, retry)
            except ShortlistError as error:
                call = plan.throw(error)
            else:
                call = plan.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _attempts(call: Call[T], url: str, retry: Retry) -> Generator[Call[T] | Pause, Any, T]:
    failures, maybe_done, began = 0, False, time.monotonic()
    failure: ShortlistError
    while True:
        try:
            response: httpx.Response = yield call
        except NEVER_SENT as error:
            failure, again, wait_s = _broken(call, url, error), call.route.repeat is not NEVER, 0.0
        except httpx.RequestError as error:
            failure, again, wait_s, maybe_done = _broken(call, url, error), call.safe, 0.0, True
        else:
            if response.is_success:
                return _read(call, url, response)
            if maybe_done and response.status_code == GONE and call.route.method == "DELETE":
                return call.read(b"", {})  # by the attempt before
            failure = _refused(call, url, response)
            wait_s = _retry_after(response)
            if isinstance(failure, TooManyRequests):  # it was refused before anything was done
                again = call.route.repeat is not NEVER
            else:
                again = call.safe and _may_pass(response)
                maybe_done = maybe_done or again
        failures += 1
        pause = retry.pause(failures, wait_s, time.monotonic() - began) if again else None
        if pause is None:
            raise failure
        yield pause


def _may_pass(response: httpx.Response) -> bool:
    """A quota (429) is not a matter of time, unless the answer says so."""
    status = response.status_code
    return status in TRY_LATER and (status != 429 or "retry-after" in response.headers)


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _read(call: Call[T], url: str, response: httpx.Response) -> T:
    try:
        return call.read(response.content, response.headers)
    except KeyError as error:
        raise UnexpectedAnswer(
            f"{call}: the answer of {url} lacks the field {error}; is the service of another version?"
        ) from None
    except (ValueError, TypeError, AttributeError):
        raise _no_service(call, url, response) from None


def _refused(call: Call[Any], url: str, response: httpx.Response) -> ShortlistError:
    """The error of a problem document, or that the answer is none."""
    try:
        problem, request_id = json.loads(response.content), response.headers.get("x-request-id", "")
        return problem_error(str(call), problem, status=response.status_code, request_id=request_id)
    except (ValueError, KeyError, TypeError, AttributeError):
        return _no_service(call, url, response)


def _no_service(call: Call[Any], url: str, response: httpx.Response) -> UnexpectedAnswer:
    kind = response.headers.get("content-type", "nothing").partition(";")[0]
    there = response.headers.get("location")
    what = f"sends on to {there}" if there else f"answers {response.status_code} with {kind}"
    return UnexpectedAnswer(f"{call}: {url} {what}; is this the address of a Shortlist service?")


def _broken(call: Call[Any], url: str, error: httpx.RequestError) -> ConnectionFailed:
    if isinstance(error, httpx.TimeoutException):
        return TimedOut(f"{call}: {url} did not answer in time ({type(error).__name__})")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConnectionFailed(
            f"{call}: the certificate of {url} is not trusted ({error}); the variable SSL_CERT_FILE may name "
            "a file with the certificate that it was signed by"
        )
    if isinstance(error, httpx.ConnectError):
        return ConnectionFailed(f"{call}: no service answers at {url} ({error}); does the service run?")
    return ConnectionFailed(f"{call}: the connection to {url} broke ({error or type(error).__name__})")
