"""Claims C2 and C3 on planted runs: where the effect is there, where a control has it too, and where nothing is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from planted_gradients import PROBES, D, K, axes, collection, role, rotation, run

from anisotropy.errors import UserError
from anisotropy.report.published import table1
from anisotropy.report.rules.tangents import (
    PRIMARY,
    gradients_concentrate,
    printed_anisotropy,
    printed_concentration,
    proxy_carries_anisotropy,
)
from anisotropy.report.scorecard import Outcome
from anisotropy.studies.results import Collection
from anisotropy.studies.tangent_bases import Course
from anisotropy.studies.tangent_cells import Choices, cells
from anisotropy.studies.tangent_tables import stage_table

CHOICES = Choices(rank=K, draws=200, null_draws=39)


def stages(collections, bases=("early",)):
    course = Course(collections)
    return stage_table(course, cells(course, CHOICES, ["activation"], bases), CHOICES)


def first(rule, collections):
    verdict = rule(stages(collections))[0]
    assert verdict.reading == "activation gradient, early basis, early"
    return verdict


def test_a_planted_effect_holds():
    for rule in (gradients_concentrate, proxy_carries_anisotropy):
        verdict = first(rule, run(8.0))
        assert verdict.outcome is Outcome.HOLDS, verdict.reason
        assert verdict.low > 0
        assert verdict.seeds == 1
        assert min(value for _, value in verdict.controls) == verdict.estimate


@pytest.mark.parametrize("rule", [gradients_concentrate, proxy_carries_anisotropy])
def test_a_model_that_shows_no_more_than_untrained_is_rejected(rule):
    verdict = first(rule, run(8.0, untrained=8.5))
    assert verdict.outcome is Outcome.FAILS
    assert "untrained at T1_in, Tm" in verdict.reason


def test_shuffled_labels_that_show_it_too_reject_c2():
    verdict = first(gradients_concentrate, run(8.0, shuffled=9.0))
    assert verdict.outcome is Outcome.FAILS
    assert "a control is as high: shuffled labels at T1_in, Tm" in verdict.reason
    assert dict(verdict.controls)["shuffled labels"] == pytest.approx(np.log(8 / 9), abs=0.05)


def test_a_basis_of_another_probe_that_does_as_well_rejects_c2():
    verdict = first(gradients_concentrate, run(8.0, start={"T1_in": 0, "Tm": 0}))
    assert verdict.outcome is Outcome.FAILS
    assert "other probe" in verdict.reason


def test_next_variance_directions_that_hold_as_much_reject_both():
    spread = run(8.0)
    for found in spread:
        for probe, at in (("T1_in", 0), ("Tm", 12)):
            found.arrays.update(role(f"{probe}.activation.gradient", [axes(*[8.0] * 2 * K, start=at)] * 10))
    assert "next variance" in first(gradients_concentrate, spread).reason
    verdict = first(proxy_carries_anisotropy, spread)
    assert verdict.outcome is Outcome.FAILS
    assert "next variance" in verdict.reason


def random_directions(seed):
    """A run whose gradients have a strong subspace that has nothing to do with activations."""
    turned = run(8.0)
    for number, found in enumerate(turned):
        for probe in PROBES:
            r = rotation([seed, number])
            covariances = [r @ axes(*[8.0 * (1 + 0.05 * np.cos(block))] * K) @ r.T for block in range(10)]
            found.arrays.update(role(f"{probe}.activation.gradient", covariances))
    return turned


@pytest.mark.parametrize("rule", [gradients_concentrate, proxy_carries_anisotropy])
def test_gradients_in_random_directions_never_hold(rule):
    assert all(first(rule, random_directions(seed)).outcome is not Outcome.HOLDS for seed in range(6))


@pytest.mark.parametrize("rule", [gradients_concentrate, proxy_carries_anisotropy])
def test_the_untrained_model_alone_never_holds(rule):
    for verdict in rule(stages([collection(0, 8.0)], bases=("own",))):
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "a control was not run: untrained" in verdict.reason


def test_less_energy_than_chance_fails():
    verdict = first(gradients_concentrate, run(0.2, shuffled=0.1, untrained=0.1))
    assert verdict.outcome is Outcome.FAILS
    assert "less gradient energy than random directions at T1_in, Tm" in verdict.reason


def varied(collections, spread):
    """The same run with trained blocks that differ by a factor of up to e^spread either way."""
    for found in collections[1:]:
        for probe, at in (("T1_in", 0), ("Tm", 12)):
            factors = np.exp(spread * np.cos(np.arange(10)))
            covariances = [axes(*[8.0 * factor] * K, start=at) for factor in factors]
            found.arrays.update(role(f"{probe}.activation.gradient", covariances))
    return collections


def test_blocks_that_disagree_leave_it_open():
    verdict = first(gradients_concentrate, varied(run(8.0, shuffled=15.0), 2.0))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "reaches a control: shuffled labels" in verdict.reason


def test_the_worst_seed_decides():
    table = pd.concat([stages(run(8.0)), stages(run(8.0, shuffled=9.0)).assign(seed=1)])
    verdict = gradients_concentrate(table)[0]
    assert verdict.outcome is Outcome.FAILS
    assert verdict.seeds == 2


def test_every_reading_has_a_verdict_the_primary_one_first():
    table = stages(run(8.0), bases=("early", "own", "semi_nmf"))
    for rule in (gradients_concentrate, proxy_carries_anisotropy):
        readings = [verdict.reading for verdict in rule(table)]
        assert len(readings) == len(set(readings)) == 6
        assert readings[0] == "activation gradient, early basis, early"
    assert PRIMARY == ("activation", "early", "early")


def test_models_keep_their_order():
    table = pd.concat([stages(run(8.0)), stages(run(2.0, model="another"))])
    assert list(dict.fromkeys(verdict.model for verdict in gradients_concentrate(table))) == ["planted", "another"]


def test_a_missing_column_is_named():
    with pytest.raises(UserError, match="lacks the columns high, low"):
        gradients_concentrate(stages(run(8.0)).drop(columns=["low", "high"]))


class TestPrinted:
    def test_the_paper_prints_no_controls_so_nothing_can_hold(self):
        for verdicts in (printed_concentration(table1()), printed_anisotropy(table1())):
            assert len(verdicts) == 5
            assert {verdict.outcome for verdict in verdicts} == {Outcome.INCONCLUSIVE}
            assert all("no control" in verdict.reason for verdict in verdicts)

    def test_a_ratio_at_chance_or_a_larger_normal_delta_would_fail(self):
        table = table1()
        low = table.assign(value=np.where(table["metric"] == "energy_ratio", 0.9, table["value"]))
        assert {verdict.outcome for verdict in printed_concentration(low)} == {Outcome.FAILS}
        tangent = table["metric"] == "delta_isoscore_star_tangent_percent"
        swapped = table.assign(value=np.where(tangent, -1.0, table["value"]))
        assert {verdict.outcome for verdict in printed_anisotropy(swapped)} == {Outcome.FAILS}


def test_planted_collections_are_what_they_say():
    found = collection(1, 8.0)
    assert isinstance(found, Collection)
    assert found.arrays["Tm.activation.gradient.mean"].shape == (10, D)


def test_the_worst_of_every_training_seed_is_averaged():
    table = pd.concat([stages(run(8.0)), stages(run(6.0)).assign(seed=1)])
    for rule in (gradients_concentrate, proxy_carries_anisotropy):
        verdict = rule(table)[0]
        apart = [one for _, one in verdict.by_seed]
        assert [seed for seed, _ in verdict.by_seed] == [0, 1]
        assert verdict.estimate == pytest.approx(np.mean([one.estimate for one in apart]))
        assert (verdict.low, verdict.high) == (min(one.low for one in apart), max(one.high for one in apart))
        assert verdict.seeds == 2
