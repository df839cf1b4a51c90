"""What requests are held to; docs/limits.md says so to users, and a test compares the two."""

from __future__ import annotations

MAX_DIM = 4_096
MAX_ARMS = 10_000
MAX_K = 1_000
MAX_EXCLUDE = 10_000
MAX_BATCH = 1_000
MAX_REWARDS = 10_000
MAX_FEATURE = 1e6
MAX_VALUE = 1e9
MAX_TAGS = 64
MAX_METADATA_CHARS = 16_384
MAX_PAGE = 1_000
MAX_TOKEN_CHARS = 400_000
MAX_LINE_BYTES = 1 << 20
MAX_CENTER_READS = 2_000_000_000
MAX_RANDOM_CENTER_READS = 200_000_000
