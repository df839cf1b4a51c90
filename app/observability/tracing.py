"""Optional traces by OpenTelemetry: the framework's own instrumentation, and where its spans go.

Off, it costs nothing. On, every request is a span that continues the caller's trace, named by its route and
exported by OTLP over HTTP; the standard variables hold (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastapi.telemetry import TelemetryConfig

from app.errors import StartupError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


def provider(*, enabled: bool) -> TracerProvider | None:
    """Where spans go, None when tracing is off. Raises StartupError when the extra is not installed."""
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
    made = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


def telemetry(spans: TracerProvider | None) -> TelemetryConfig:
    """What the framework is told: spans of requests, and nothing that would hold what was sent."""
    return {
        "tracing": spans is not None,
        "tracer_provider": spans,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
    }
