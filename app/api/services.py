"""How an endpoint asks for a service: by a parameter such as ``bandits: Provided[Bandits]``.

The service is the attribute of that name of the application's ``service``: what composes it lists them.
``JsonRoute`` fills the parameter in. FastAPI only documents endpoints, and sees nothing to document here.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Depends

T = TypeVar("T")


def _of_the_application() -> None:
    """Never called."""


PROVIDED = Depends(_of_the_application)
Provided = Annotated[T, PROVIDED]
