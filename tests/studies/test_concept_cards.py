"""Cards: what they say of planted concepts, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from conceptcase import COORDINATES, SEEDS, TRACKED, collection, random_directions

from anisotropy.errors import UserError
from anisotropy.studies import concept_cards


def planted(random_seed=0):
    return np.stack([random_directions(np.random.default_rng(random_seed), 12, COORDINATES)] * SEEDS)


def test_a_card_carries_what_was_collected():
    cards = concept_cards.make_cards([collection(0), collection(5)], 3)
    assert [card.number for card in cards] == [1, 2, 3]
    card = cards[0]
    assert card.mass_share == pytest.approx(2 / 30)
    assert card.tokens == ((5, 0.8), (6, 0.2))
    assert card.unembeddings == ((7, 0.9), (8, -0.2))
    assert card.examples[0] == concept_cards.Example((3,), 5, (4,), pytest.approx(3.0))
    assert card.steps == (0, 5)


def test_more_cards_than_concepts_are_as_many_as_there_are():
    assert len(concept_cards.make_cards([collection(5)], 99)) == 20


def test_a_direction_is_found_where_another_seed_has_it():
    directions = planted()
    own, absent = collection(2, lambda layer: directions), collection(1)
    found = concept_cards.directions_found(directions[0].astype(float), [absent, own])
    np.testing.assert_allclose(found[1], 1, rtol=1e-5)
    assert (found[0] < 0.8).all()
    opposite = collection(3, lambda layer: -directions)
    # Codes are not negative: a direction is not its opposite.
    assert (concept_cards.directions_found(directions[0].astype(float), [opposite]) < 0.8).all()


def test_the_second_seed_is_the_one_that_looks():
    directions = planted()
    only_first = np.stack([directions[0], random_directions(np.random.default_rng(9), 12, COORDINATES)])
    found = concept_cards.directions_found(directions[0].astype(float), [collection(1, lambda layer: only_first)])
    assert (found < 0.9).all()


def test_activation_is_one_before_the_concept_and_more_where_it_is():
    directions = planted()
    random = np.random.default_rng(1)
    before, after = (collection(step, lambda layer: directions) for step in (1, 2))
    even = 1 + 0.01 * random.random((TRACKED, 12))
    chosen = even.copy()
    chosen[:10, 4] = 20.0
    before.arrays["tracked"] = (even @ directions[0]).astype(np.float32)
    after.arrays["tracked"] = (chosen @ directions[0]).astype(np.float32)
    courses = concept_cards.activation_courses(directions[0].astype(float), [before, after])
    assert courses[0, 4] == pytest.approx(1, abs=0.02)
    expected = chosen.sum(1) * chosen[:, 4].sum() / chosen.sum()
    assert courses[1, 4] == pytest.approx((chosen[:, 4] / expected)[:10].mean(), rel=1e-3)


def test_chance_is_what_a_simulation_of_maxima_gives():
    random = np.random.default_rng(2)
    cosines = random_directions(random, 2000, 30)[:, 0].reshape(100, 20)
    assert concept_cards.chance_cosine(20, 30) == pytest.approx(cosines.max(axis=1).mean(), abs=0.03)


def test_checkpoints_of_other_tokens_are_refused():
    other = collection(1)
    other.arrays["reservoir"] = np.arange(TRACKED)[::-1]
    with pytest.raises(UserError, match="different tokens"):
        concept_cards.make_cards([other, collection(2)])
    with pytest.raises(UserError, match="0 cards of 1 checkpoints"):
        concept_cards.make_cards([collection(2)], 0)
