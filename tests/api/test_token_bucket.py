"""How many requests a rate lets in at once, and after which wait: by a clock of the test."""

import pytest

from app.api.api_keys import ApiKey
from app.api.rate_limits import Rates
from app.platform.errors import TooManyRequests
from app.platform.metrics import Metrics


@pytest.mark.parametrize(("rate", "at_once"), [(0.001, 1), (0.4, 1), (1.0, 1), (2.5, 2), (3.0, 3)])
def test_a_bucket_holds_a_second_and_the_wait_that_is_named_is_enough(rate: float, at_once: int):
    now_s = 1_000.0
    rates = Rates(Metrics(), clock=lambda: now_s)
    key = ApiKey("shop", frozenset({"choose"}), rate=rate)
    for _ in range(at_once):
        rates.admit(key)
    with pytest.raises(TooManyRequests) as refused:
        rates.admit(key)
    wait_s = refused.value.retry_after_s
    now_s += wait_s - 1.0 - 1e-3  # the wait is in whole seconds: one less is too little
    with pytest.raises(TooManyRequests):
        rates.admit(key)
    now_s += 1.0 + 1e-3
    rates.admit(key)
