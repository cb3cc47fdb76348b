"""Student's interval against SciPy's, and its rate on replicates without an effect."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from anisotropy.studies.replicates import mean_interval


def test_equals_scipys_interval():
    values = np.random.default_rng(0).normal(2, 3, size=5)
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert found == pytest.approx((values.mean(), low, high))


def test_misses_zero_at_its_stated_rate():
    random = np.random.default_rng(1)
    intervals = [mean_interval(random.normal(size=5)) for _ in range(4000)]
    # Binomial(4000, 0.025) has mean 100 and SD 10.
    assert 60 < sum(interval.low > 0 for interval in intervals) < 140


@pytest.mark.parametrize("values", [[1.0], [1.0, np.nan], []])
def test_too_few_or_missing_values_are_refused(values):
    with pytest.raises(ValueError, match="at least 2 finite values"):
        mean_interval(values)
