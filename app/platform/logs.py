"""The log, on standard error, and optional traces by OpenTelemetry.

Tracing costs nothing when off. When on, every request is a span which continues the caller's trace, is named
by its route and exported by OTLP over HTTP; OpenTelemetry's standard variables hold
(OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...).
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from fastapi.telemetry import TelemetryConfig
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from app.platform.errors import StartupError
from app.platform.settings import LogFormat

_COLORS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}  # of the terminal, by level
_NOT_EXTRA = frozenset(RESERVED_ATTRS) | {"color_message", "taskName"}


def set_up_logging(level: str, log_format: LogFormat = "auto") -> None:
    """Log to standard error from now on. ``auto``: text on a terminal, else JSON."""
    terminal = sys.stderr.isatty()
    handler = logging.StreamHandler()
    if log_format == "text" or (log_format == "auto" and terminal):
        handler.setFormatter(TextFormatter(colored=terminal and "NO_COLOR" not in os.environ))
    else:
        renamed = {"levelname": "level", "name": "logger"}
        style = "%(levelname)s %(name)s %(message)s"
        handler.setFormatter(JsonFormatter(style, rename_fields=renamed, timestamp="time"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    """``time level logger message name=value ...``, then the traceback if there is one.

    Characters that a terminal would act on are written as escapes.
    """

    def __init__(self, *, colored: bool) -> None:
        super().__init__()
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        extras = {name: value for name, value in vars(record).items() if name not in _NOT_EXTRA}
        words = [
            self.formatTime(record, "%Y-%m-%d %H:%M:%S"),
            f"{record.levelname:<8}",
            f"{record.name:<16}",
            _harmless(record.getMessage()),
            *(
                f"{name}={text if text and text.isprintable() and ' ' not in text else repr(value)}"
                for name, value in extras.items()
                for text in [str(value)]
            ),
        ]
        line = " ".join(words)
        if self._colored and record.levelname in _COLORS:
            line = f"\x1b[{_COLORS[record.levelname]}m{line}\x1b[0m"
        if record.exc_info:
            line += "\n" + _harmless(self.formatException(record.exc_info))
        return line


def _harmless(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


def provider(*, enabled: bool) -> TracerProvider | None:
    """The provider for spans, None when tracing is off. Raises StartupError when the extra is not
    installed.
    """
    if not enabled:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise StartupError("tracing needs the extra: pip install -e '.[otel]' in a checkout") from None
    name = os.environ.get("OTEL_SERVICE_NAME") or "shortlist"
    tracer_provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracer_provider


def telemetry(spans: TracerProvider | None) -> TelemetryConfig:
    """The framework's configuration: spans of requests, and nothing with sent values."""
    return {
        "tracing": spans is not None,
        "tracer_provider": spans,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
    }
