"""Decisions, rewards and learners as Parquet files that other tools read."""

from app.platform.errors import ShortlistError

try:
    import fsspec  # noqa: F401 - whether it is there
    import pyarrow as pa  # noqa: F401 - as above
except ImportError:
    # Here, so that whatever is imported of this folder says it, and says it first.
    message = "a lake needs the extra lake of the service: pip install -e '.[lake]' in a checkout"
    raise ShortlistError(message) from None
