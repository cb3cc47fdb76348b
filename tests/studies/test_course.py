import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anisotropy.studies.course import checkpoint_weights, stage_steps

steps = st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True).map(sorted)


@given(steps, st.sampled_from(["step", "equal"]))
def test_weights_sum_to_one_and_are_positive(steps, weighting):
    weights = checkpoint_weights(steps, weighting)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()


@given(steps.filter(lambda steps: len(steps) > 1))
def test_by_step_an_average_is_the_trapezoid_integral(steps):
    values = np.sin(np.arange(len(steps)))
    integral = np.trapezoid(values, steps) / (steps[-1] - steps[0])
    assert checkpoint_weights(steps) @ values == pytest.approx(integral)


def test_a_linear_course_averages_to_its_middle():
    steps = [1, 2, 4, 8, 16, 64, 100]
    assert checkpoint_weights(steps) @ np.array(steps) == pytest.approx((1 + 100) / 2)
    assert checkpoint_weights(steps, "equal") @ np.array(steps) == pytest.approx(np.mean(steps))


@pytest.mark.parametrize("bad", [[], [1, 1], [2, 1]])
def test_steps_must_increase(bad):
    with pytest.raises(ValueError, match="increasing"):
        checkpoint_weights(bad)


def test_unknown_weighting():
    with pytest.raises(ValueError, match="'log'"):
        checkpoint_weights([1, 2], "log")


def test_stages_are_the_first_and_the_last_three_tenths_without_step_0():
    course = [0, 1, 30, 31, 69, 70, 100]
    assert stage_steps(course, "early") == [1, 30]
    assert stage_steps(course, "late") == [70, 100]
    assert stage_steps([0], "late") == stage_steps([0], "early") == []
    assert stage_steps([5], "late") == [5]


def test_unknown_stage():
    with pytest.raises(ValueError, match="'middle'"):
        stage_steps([1, 2], "middle")
