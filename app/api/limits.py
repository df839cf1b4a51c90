"""Limits of requests. docs/limits.md tells them to users, and a test compares the two."""

from __future__ import annotations

from app.filters.fields import MAX_FIELD_CHARS  # noqa: F401 - the language checks it
from app.filters.filter import (  # noqa: F401 - likewise
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_MEMBERS,
    MAX_STRING_CHARS,
)
from app.services.bandits.bandits import (  # noqa: F401 - the service checks them
    MAX_KEY_LEARNER_BYTES,
    MAX_LEARNER_BYTES,
)
from app.services.bandits.context import (  # noqa: F401 - likewise
    MAX_CONTEXT_KEY_LEARNER,
    MAX_CONTEXT_LEARNER,
)
from app.services.bandits.encoding import (  # noqa: F401 - likewise
    MAX_CONTEXT_DIM,
    MAX_CONTEXT_FIELDS,
    MAX_CONTEXT_NUMBER,
    MAX_FIELD_NUMBER,
    MAX_TEXT_CHARS,
    MAX_TEXTS_CHARS,
)
from app.services.bandits.versions import MAX_VERSIONS  # noqa: F401 - likewise
from app.services.choosing.policies import MAX_ELIMINATION_DIM  # noqa: F401 - likewise
from app.services.measuring.report import MAX_BUCKETS  # noqa: F401 - likewise
from app.services.queries.centers import MAX_CENTER_READS, MAX_RANDOM_CENTER_READS  # noqa: F401 - likewise

MAX_DIM = 4_096
MAX_CATEGORY_CHARS = 256
MAX_CONTEXT_BYTES = 2**16
MAX_ARMS = 10_000
MAX_K = 1_000
MAX_EXCLUDE = 10_000
MAX_AT_MOST = 10
MAX_EXPLORE_CENTERS = 100
MAX_BATCH = 1_000
MAX_BATCH_ARMS = 20_000
MAX_REWARDS = 10_000
MAX_FEATURE = 1e6
MAX_VALUE = 1e9
MIN_DELTA = 1e-100  # as shortlist.checks has it
MAX_TAGS = 64
MAX_TAG_CHARS = 128
MAX_METADATA_CHARS = 16_384
MAX_METADATA_FIELDS = 256
MAX_PAGE = 1_000
MAX_TOKEN_CHARS = 400_000
MAX_LINE_BYTES = 1 << 20
MAX_BLOCK_ARMS = 1_000
MAX_BLOCK_BYTES = 2**24
MAX_STATE_BYTES = 24 * 2**20
MAX_CENTER_POINTS = 10_000
MAX_CENTER_PAIRS = 100_000
MAX_SLATE_ARMS = 1_000
MAX_ASKED = 10_000
MAX_STATES = 100_000
MAX_FACTORS = 1_000_000
MAX_LOG_FACTOR = 1e9
MAX_DRAWS = 10_000
MAX_WAIT_S = 31 * 86_400
MAX_HALF_LIFE_S = 3_650 * 86_400
MAX_BUCKET_S = 3_650 * 86_400
MAX_IDLE_TTL_S = 3_650 * 86_400
MIN_KEEP_S = 60
MAX_KEEP_S = 3_650 * 86_400
MAX_PRIOR_STRENGTH = 1_000_000
MAX_VECTORS = 1_000_000
MAX_VECTOR_DIM = 1_000_000
MAX_TERM = 1e13
MAX_BODY_BYTES = 2**16
MAX_VECTOR_BYTES = 2**18
MAX_IDS_BYTES = 2**21
MAX_BATCH_BYTES = 2**22
MAX_OBSERVATIONS_BYTES = 2**23
MAX_REWARDS_BYTES = 2**24
MAX_NUMBERS_BYTES = 26 * 2**20
MAX_ARMS_BYTES = 2**26
MAX_HEAD_BYTES = 65_536
MAX_HEAD_FIELDS = 100
MAX_HEAD_S = 10
MAX_BODY_S = 120
MAX_SILENCE_S = 30
MAX_UNREAD_S = 30
MAX_IDLE_S = 75
MAX_CONNECTIONS = 4_096
