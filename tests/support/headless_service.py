"""A service without its HTTP face, over a store that can be interfered with."""

from dataclasses import dataclass

from lossy_store import LossyStore
from shortlist_service.testing import headless_service
from shortlist_service.testing.headless_service import INDEX, PATIENT, bandit_record

__all__ = ["INDEX", "PATIENT", "HeadlessService", "bandit_record"]


@dataclass
class HeadlessService(headless_service.HeadlessService):
    """A started service: what it is composed of, and the store that stands between it and its data."""

    store: LossyStore
