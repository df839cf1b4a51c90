"""/metrics of several processes of one address: whichever is asked, no counter falls."""

import os
import re
from pathlib import Path

import pytest

from app.platform.group_metrics import GONE_S, ShownMetrics
from app.platform.metrics import Metrics


def samples(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    assert len({line.rsplit(" ", 1)[0] for line in lines}) == len(lines)
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def group(folder: Path) -> tuple[list[Metrics], list[ShownMetrics]]:
    """Three processes that answered 1, 2 and 3 requests and have written their files."""
    every = [Metrics() for _ in range(3)]
    shown = [ShownMetrics(metrics, folder, number) for number, metrics in enumerate(every, 1)]
    for number, metrics in enumerate(every, 1):
        metrics.requests.labels("GET", "/healthz", "200").inc(number)
        metrics.request_seconds.labels("/healthz").observe(0.001)
        metrics.backlog.set(number)
        metrics.store_bytes.set(number)
        shown[number - 1].write()
    return every, shown


def test_whoever_is_asked_shows_all_processes_each_by_its_label(tmp_path: Path):
    every, shown = group(tmp_path)
    every[1].requests.labels("GET", "/healthz", "200").inc(40)  # after its file was written
    name = 'shortlist_requests_total{{method="GET",process="{}",route="/healthz",status="200"}}'
    for asked, values in ((0, (1, 2, 3)), (1, (1, 42, 3)), (2, (1, 42, 3))):
        found = samples(shown[asked].text())
        assert tuple(found[name.format(process)] for process in (1, 2, 3)) == values
        memory = [each for each in found if each.startswith("process_resident_memory_bytes")]
        assert len(memory) == 3
        # of the store as the asked process sees it, once
        assert found["shortlist_reward_backlog"] == asked + 1
        assert found["shortlist_store_bytes"] == asked + 1
    text = shown[0].text().decode()
    heads = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(heads) == len(set(heads)), "a metric is in one piece"
    buckets = [line for line in text.splitlines() if line.startswith("shortlist_request_seconds_count")]
    assert len(buckets) == 3


@pytest.mark.rest
def test_a_process_that_is_gone_is_left_out(tmp_path: Path):
    _, shown = group(tmp_path)
    past = (tmp_path / "3.metrics").stat().st_mtime - 2 * GONE_S
    os.utime(tmp_path / "3.metrics", (past, past))
    text = shown[0].text().decode()
    assert 'process="2"' in text
    assert 'process="3"' not in text


@pytest.mark.rest
def test_a_process_that_is_alone_has_no_label_and_no_file(tmp_path: Path):
    metrics = Metrics()
    metrics.applied.inc(5)
    shown = ShownMetrics(metrics)
    shown.write()
    assert samples(shown.text())["shortlist_rewards_applied_total"] == 5
    assert not list(tmp_path.iterdir())
