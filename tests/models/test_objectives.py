from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anisotropy.models.objectives import IGNORED, inputs_and_labels, masked, shuffled

MASK = 2
shapes = st.tuples(st.integers(1, 12), st.integers(1, 40))
seeds = st.integers(0, 2**31)


def tokens(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, 100, size=shape)


class TestMasked:
    @given(shapes, st.floats(0.001, 0.999), seeds)
    def test_masks_the_share_in_every_sequence_and_asks_for_what_was_there(
        self, shape: tuple[int, int], share: float, seed: int
    ) -> None:
        ids = tokens(shape)
        before = ids.copy()
        inputs, labels = masked(ids, MASK, share, seed)
        hidden = inputs == MASK
        assert (hidden.sum(1) == max(1, round(share * shape[1]))).all()
        assert np.array_equal(labels[hidden], ids[hidden])
        assert (labels[~hidden] == IGNORED).all()
        assert np.array_equal(inputs[~hidden], ids[~hidden])
        assert np.array_equal(ids, before)  # the input is not written to

    @given(shapes, seeds, st.integers(1, 12))
    def test_a_sequence_is_masked_alike_whatever_stands_beside_it(
        self, shape: tuple[int, int], seed: int, kept: int
    ) -> None:
        ids = tokens(shape)
        others = tokens(shape, seed=1)
        kept = min(kept, shape[0])
        others[:kept] = ids[:kept]
        whole, changed, short = (masked(x, MASK, 0.3, [seed, 7]) for x in (ids, others, ids[:kept]))
        for part in range(2):
            assert np.array_equal(whole[part][:kept], changed[part][:kept])
            assert np.array_equal(whole[part][:kept], short[part])

    def test_positions_depend_on_seed_and_sequence_and_are_spread_evenly(self) -> None:
        ids = tokens((400, 20))
        first, again, other = (masked(ids, MASK, 0.3, seed)[0] == MASK for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
        assert len({row.tobytes() for row in first}) > 390
        # Each position is masked in Binomial(400, 0.3) sequences: 120 ± 9.2; six deviations.
        assert abs(first.sum(0) - 120).max() < 6 * np.sqrt(400 * 0.3 * 0.7)

    @pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
    def test_a_share_outside_the_open_interval_is_refused(self, share: float) -> None:
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            masked(tokens((2, 4)), MASK, share, 0)


class TestShuffled:
    @given(shapes, seeds, st.booleans())
    def test_keeps_the_multiset_and_the_places(self, shape: tuple[int, int], seed: int, some_ignored: bool) -> None:
        labels = masked(tokens(shape), MASK, 0.5, 0)[1] if some_ignored else tokens(shape)
        before = labels.copy()
        result = shuffled(labels, seed)
        assert Counter(result.reshape(-1).tolist()) == Counter(labels.reshape(-1).tolist())
        assert np.array_equal(result == IGNORED, labels == IGNORED)
        assert np.array_equal(labels, before)
        assert np.array_equal(shuffled(labels, seed), result)

    def test_breaks_the_order_over_the_whole_text(self) -> None:
        labels = np.arange(4000).reshape(100, 40)
        result = shuffled(labels, 0)
        assert (result == labels).mean() < 0.005  # one position in 4000 by chance
        stays = (result // 40 == np.arange(100)[:, None]).mean()
        assert stays < 0.03  # 1 % by chance, all of them if shuffled within sequences
        assert (np.diff(result, axis=1) == 1).mean() < 0.005
        assert not np.array_equal(result, shuffled(labels, 1))


class TestInputsAndLabels:
    def test_causal_asks_for_the_text_itself(self) -> None:
        ids = tokens((3, 5))
        inputs, labels = inputs_and_labels(ids, "causal", mask_id=None)
        assert np.array_equal(inputs, ids)
        assert np.array_equal(labels, ids)

    def test_masked_passes_share_and_seed_on(self) -> None:
        ids = tokens((3, 10))
        found = inputs_and_labels(ids, "masked", mask_id=MASK, mask_share=0.5, seed=[4, 1])
        expected = masked(ids, MASK, 0.5, [4, 1])
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))

    def test_errors(self) -> None:
        with pytest.raises(ValueError, match="unknown objective 'prefix': expected 'causal' or 'masked'"):
            inputs_and_labels(tokens((1, 4)), "prefix", mask_id=MASK)
        with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
            inputs_and_labels(tokens((1, 4)), "masked", mask_id=None)
