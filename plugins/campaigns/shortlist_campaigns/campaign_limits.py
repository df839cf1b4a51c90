"""Limits of campaigns, of searches for centres and of draws. docs/limits.md tells users.

Those that the service has too, for bodies of the same kind, are the same there.
"""

from __future__ import annotations

MAX_VALUE = 1e9
MAX_K = 1_000
MAX_CENTER_POINTS = 10_000
MAX_CENTER_PAIRS = 100_000
MAX_SLATE_ARMS = 1_000
MAX_STATES = 100_000
MAX_FACTORS = 1_000_000
MAX_LOG_FACTOR = 1e9
MAX_DRAWS = 10_000
MAX_ASKED = 10_000
MAX_ASKED_ARMS = 100_000
MAX_BODY_BYTES = 4 << 20
MAX_VECTOR_BYTES = 2**18
MAX_IDS_BYTES = 2**21
