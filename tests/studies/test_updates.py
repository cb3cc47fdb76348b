"""The updates study on synthetic collections with planted updates, and on real tiny models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig

from anisotropy.errors import UserError
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.models.corpus import StudyText
from anisotropy.studies import updates
from anisotropy.studies.results import Collection

SEED = 11
V, D, RANK = 800, 32, 4
COUNTS = (1e6 / np.arange(1, V + 1)).astype(np.int64)


def steep(scales=(4, 3.5, 3, 2.5), seed=SEED):
    """A matrix whose principal directions are known: the first axes."""
    rows = np.random.default_rng(seed).normal(size=(V, D))
    rows[:, : len(scales)] *= scales
    return rows


def collection(step, rows, output=None, counts=COUNTS):
    arrays = {"token_ids": np.arange(len(rows)), "counts": counts, "tokens_counted": np.array([counts.sum()])}
    for name, matrix in (("input", rows), ("output", output)):
        if matrix is not None:
            centred = matrix - matrix.mean(0)
            arrays[f"{name}_rows"] = matrix.astype(np.float32)
            arrays[f"{name}_count"] = np.array([len(matrix)])
            arrays[f"{name}_mean"] = matrix.mean(0)
            arrays[f"{name}_scatter"] = centred.T @ centred
    return Collection("synthetic", step, f"hash{step}", arrays)


def run(*moves, start=None, steps=(1, 2, 100)):
    """Checkpoints at which the rows have moved by each of ``moves`` in turn."""
    rows = steep() if start is None else start
    found = [collection(steps[0], rows)]
    for step, move in zip(steps[1:], moves, strict=True):
        rows = rows + move
        found.append(collection(step, rows))
    return found


def only(table, reading="corrected", update="measured", **more):
    chosen = (table["reading"] == reading) & (table["update"] == update)
    for column, value in more.items():
        chosen &= table[column] == value
    return table[chosen].reset_index(drop=True)


def noise(size=0.01, seed=1):
    return size * np.random.default_rng(seed).normal(size=(V, D))


def test_updates_inside_the_subspace_have_the_largest_enrichment_there_is():
    move = np.zeros((V, D))
    move[:, :RANK] = noise()[:, :RANK]
    table = updates.pair_enrichments(run(move, steps=(1, 2)), ranks=[RANK])
    # The planted plane is found up to sampling noise; a token that is left out cannot pull it towards itself.
    assert only(table, "naive")["tangent"].median() == pytest.approx(D / RANK, rel=0.03)
    corrected = only(table)
    assert corrected["tangent"].median() > 0.97 * (D - 1) / RANK
    assert corrected["normal_of_all"].median() < 0.2


def test_updates_of_random_direction_are_at_chance_with_the_stated_spread():
    table = updates.pair_enrichments(run(noise(), noise(seed=2)), ranks=[RANK, 2])
    for rank in (RANK, 2):
        rows = only(table, rank=rank, start=1)
        error = rows["tangent"].std() / np.sqrt(len(rows))
        for column in ("tangent", "normal", "normal_of_all", "complement"):
            assert rows[column].mean() == pytest.approx(1, abs=4 * max(error, 0.01)), column
        assert rows["tangent"].std() == pytest.approx(rows["spread"].mean(), rel=0.1)
    naive = only(table, "naive", start=1)
    assert naive["spread"].iloc[0] == pytest.approx(np.sqrt(2 * (D - RANK) / (RANK * (D + 2))))
    assert naive["spread"].iloc[0] == pytest.approx(updates.chance_spread(D, RANK))


@pytest.mark.parametrize(("d", "normal_within"), [(6, 0.05), (32, 0.01)])
def test_chance_after_the_removal_is_exact(d, normal_within):
    # With w half inside the subspace and few dimensions, k/d is far off and (k − c)/(d − 1) is not. The normal part is
    # a ratio of two shares, whose mean is the ratio of means up to order 1/d².
    k = d // 3
    w = np.zeros((40_000, d))
    w[:, [0, d - 1]] = 1
    off = updates.remove_component(np.random.default_rng(3).normal(size=w.shape), w)
    shares = np.cumsum(off**2, 1) / (off**2).sum(1)[:, None]
    share = shares[:, k - 1]
    assert share.mean() == pytest.approx((k - 0.5) / (d - 1), abs=4 * share.std() / 200)
    assert abs(share.mean() / (k / d) - 1) > (0.05 if d == 6 else 0.01)
    found = updates._enrichments(shares, k, d, np.cumsum(w**2, 1) / 2)
    for name, within in (("tangent", 0.01), ("normal_of_all", 0.01), ("normal", normal_within)):
        assert found[name].mean() == pytest.approx(1, abs=within), name
    assert found["tangent"].std() == pytest.approx(found["spread"][0], rel=0.02)


def test_the_complement_is_tied_to_the_tangent():
    table = only(updates.pair_enrichments(run(noise(), steps=(1, 2)), ranks=[RANK]), "naive")
    # Random directions outside share what the tangent leaves over: (d − k·E)/(d − k).
    np.testing.assert_allclose(table["complement"], (D - RANK * table["tangent"]) / (D - RANK))
    np.testing.assert_allclose(table["normal_of_all"], table["normal"] * table["complement"])


def test_pure_weight_decay_has_no_direction_left_but_looks_tangent_to_the_naive_reading():
    rows = steep()
    start = collection(1, rows.astype(np.float32).astype(np.float64))
    decayed = start.arrays["input_rows"] * np.float32(0.997)
    end = collection(2, decayed.astype(np.float64))
    table = updates.pair_enrichments([start, end], ranks=[RANK])
    for update in ("measured", "decay"):
        assert only(table, update=update)["tangent"].isna().all()
    naive = only(table, "naive")
    np.testing.assert_allclose(naive["tangent"], only(table, "naive", "decay")["tangent"], rtol=1e-3)
    # Weighted by squared length the naive enrichment of −w is the energy of the rows in the subspace over k/d.
    basis = np.linalg.eigh(np.cov(rows.T))[1][:, ::-1][:, :RANK]
    squares = (rows**2).sum(1)
    expected = ((rows @ basis) ** 2).sum() / squares.sum() * D / RANK
    assert np.average(only(table, "naive", "decay")["tangent"], weights=squares) == pytest.approx(expected, rel=1e-5)
    assert expected > 2


def test_each_correction_does_its_part():
    # Few rows without structure: each pulls the principal directions towards itself.
    rows = np.random.default_rng(4).normal(size=(80, D))
    counts = np.arange(80, 0, -1)
    pair = [collection(1, rows, counts=counts), collection(2, 0.9 * rows, counts=counts)]
    table = updates.pair_enrichments(pair, ranks=[RANK])
    naive, left_out = (only(table, reading)["tangent"] for reading in ("naive", "left out only"))
    assert naive.mean() > 1.5
    assert left_out.mean() == pytest.approx(1, abs=4 * left_out.std() / np.sqrt(80))
    assert only(table)["tangent"].isna().all()


def test_the_token_itself_is_left_out_as_by_brute_force():
    rows = np.random.default_rng(5).normal(size=(60, 12)).astype(np.float32).astype(np.float64)
    move = 0.1 * np.random.default_rng(6).normal(size=rows.shape)
    counts = np.arange(60, 0, -1)
    pair = [collection(1, rows, counts=counts), collection(2, rows + move, counts=counts)]
    found = only(updates.pair_enrichments(pair, ranks=[3]))
    moved = pair[1].arrays["input_rows"] - rows
    for i in range(60):
        _, directions = np.linalg.eigh(np.cov(np.delete(rows, i, axis=0).T))
        basis = directions[:, ::-1][:, :3]
        w = rows[i] / np.linalg.norm(rows[i])
        off = moved[i] - (moved[i] @ w) * w
        share, of_w = (off @ basis) @ (off @ basis) / (off @ off), (w @ basis) @ (w @ basis)
        assert found["tangent"][i] == pytest.approx(share / ((3 - of_w) / 11), rel=1e-6)


def test_a_token_that_does_not_move_is_missing():
    move = noise()
    move[7] = 0
    pairs = updates.pair_enrichments(run(move, noise(), steps=(1, 2, 4)), ranks=[RANK])
    assert np.isnan(only(pairs, start=1)["tangent"][7])
    assert only(pairs, "naive", start=1)["tangent"].isna().sum() == 1
    # Nothing was measured in the first pair, so the average is the second pair's, not half of it.
    stages = run(move, noise(), noise(), steps=(1, 2, 4, 100))
    pairs = updates.pair_enrichments(stages, ranks=[RANK])
    averages = only(updates.stage_averages(pairs), stage="early")
    assert averages["tangent"][7] == pytest.approx(only(pairs, start=2)["tangent"][7])


def test_a_row_of_zeros_has_nothing_to_remove():
    rows = steep()
    rows[3] = 0
    found = only(updates.pair_enrichments(run(noise(), start=rows, steps=(1, 2)), ranks=[RANK]))
    assert np.isfinite(found["tangent"]).all()
    assert found["spread"][3] == pytest.approx(updates.chance_spread(D, RANK))


def test_stages_by_the_middle_of_the_pair():
    steps = (0, 1, 2, 4, 8, 16, 32, 64)
    collections = [collection(step, steep()) for step in steps]
    stages = [(pair.start.step, pair.end.step, pair.stage) for pair in updates.checkpoint_pairs(collections)]
    assert stages[0] == (0, 1, "from untrained")
    assert [stage for *_, stage in stages[1:]] == ["early"] * 4 + ["between", "late"]
    # From 16 to 64 the middle is 40, before 0.7 of 64.
    assert updates.checkpoint_pairs(collections, lag=2)[-1].stage == "between"
    assert [pair.steps for pair in updates.checkpoint_pairs(collections, lag=3)] == [4, 7, 14, 28, 56]
    with pytest.raises(UserError, match="lag"):
        updates.checkpoint_pairs(collections, lag=0)


def test_averages_weigh_pairs_by_the_steps_they_cover():
    collections = run(noise(), noise(seed=2), noise(seed=3), steps=(1, 2, 5, 100))
    pairs = updates.pair_enrichments(collections, ranks=[RANK])
    first, second = (only(pairs, start=start)["tangent"] for start in (1, 2))
    by_step, equal = (only(updates.stage_averages(pairs, w), stage="early")["tangent"] for w in ("step", "equal"))
    np.testing.assert_allclose(by_step, (first + 3 * second) / 4)
    np.testing.assert_allclose(equal, (first + second) / 2)


def test_the_course_has_every_pair_and_the_ends_of_the_frequencies():
    frequent = (np.arange(V) < V // 4)[:, None]
    inside = np.zeros((V, D))
    inside[:, :RANK] = noise(0.05)[:, :RANK]
    collections = run(noise(), np.where(frequent, inside, noise()), steps=(0, 1, 2))
    table = updates.courses(updates.pair_enrichments(collections, ranks=[RANK, 2]))
    last = table[table["start"] == 1].set_index("group")["tangent"]
    assert last[4] > 6
    assert last[1] == pytest.approx(1, abs=0.15)
    assert set(table["start"]) == {0, 1}


def test_quarters_of_the_tokens():
    counts = np.array([5, 1, 100, 7, 9, 2, 3, 1000])
    groups = updates.rarity_groups(np.tile(counts, 2), np.tile(np.arange(8), 2))
    assert groups.tolist() == [2, 1, 4, 3, 3, 1, 2, 4] * 2


@pytest.mark.parametrize(("basis", "rows"), [("untrained", True), ("random", True)])
def test_control_bases_know_nothing_of_the_planted_directions(basis, rows):
    inside = np.zeros((V, D))
    inside[:, :RANK] = noise()[:, :RANK]
    flat = np.random.default_rng(8).normal(size=(V, D))
    collections = [collection(0, flat), *run(inside, inside, steps=(1, 2, 100))]
    found = updates.pair_enrichments(collections, ranks=[RANK], bases=[basis])
    assert set(found["stage"]) <= {"early", "late"}
    assert set(found["reading"]) == {"corrected"}
    trained = only(updates.pair_enrichments(collections, ranks=[RANK]), start=1)["tangent"].mean()
    assert found["tangent"].mean() < 0.5 * trained


def test_the_untrained_basis_needs_step_zero():
    assert updates.pair_enrichments(run(noise(), steps=(1, 2)), ranks=[RANK], bases=["untrained"]).empty


def test_one_checkpoint_has_no_updates():
    pairs = updates.pair_enrichments([collection(512, steep())], ranks=[RANK])
    assert pairs.empty
    assert updates.stage_averages(pairs).empty
    assert updates.courses(pairs).empty
    assert updates.summarise({"m": updates.stage_averages(pairs)}).empty


def test_a_rank_too_large_names_the_largest():
    with pytest.raises(UserError, match="largest rank is 15"):
        updates.pair_enrichments(run(noise(), steps=(1, 2)), ranks=[16])


def planted(strength, seed=SEED, tokens=V):
    """An update whose tangent share grows with frequency; everything else is isotropic."""
    random = np.random.default_rng(seed)
    move = random.normal(size=(tokens, D))
    rank_of_token = np.linspace(1, 0, tokens)
    move[:, :RANK] *= 1 + strength * rank_of_token[:, None]
    return 0.01 * move


def test_summary_equals_scipys_and_its_null_is_centred():
    collections = [*run(planted(4), planted(4, 12), steps=(1, 2, 4)), collection(100, steep())]
    tokens = updates.stage_averages(updates.pair_enrichments(collections, ranks=[RANK]))
    table = updates.summarise({"mini-pythia@2": tokens}, draws=300)
    found = only(table, stage="early").iloc[0]
    rows = only(tokens, stage="early")
    assert (found["model"], found["seed"], found["n"], found["missing"]) == ("mini-pythia", 2, V, 0)
    assert found["estimate"] == pytest.approx(stats.spearmanr(rows["log10_frequency"], rows["tangent"]).statistic)
    assert found["estimate"] > 0.5
    assert found["p_value"] == 2 / 301
    assert (found["null_high"] - found["null_low"]) / 2 == pytest.approx(1.96 / np.sqrt(V - 1), rel=0.2)
    # A large tangent share does not push the normal one down, since that is taken of what is left.
    assert found["normal_low"] < 1 < found["normal_high"]
    half_width = stats.norm.ppf(0.95) * rows["normal"].std() / np.sqrt(V)
    assert (found["normal_high"] - found["normal_low"]) / 2 == pytest.approx(half_width)
    assert found["complement"] < 0.8
    assert np.isnan(only(table, "corrected", "decay")["estimate"]).all()


def test_too_few_tokens_give_no_correlation():
    few = pd.DataFrame({"log10_frequency": [-1.0, -2.0, -3.0], "tangent": [1.0, 2.0, np.nan], "normal": 1.0})
    found = updates.summarise_tokens(few)
    assert (found["n"], found["missing"]) == (2, 1)
    assert np.isnan(found["estimate"])
    assert found["tangent"] == 1.5


def checkpoint(config):
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    return Checkpoint(model, "tiny", 0, "causal", None, weight_hash(model))


@pytest.mark.parametrize("tied", [True, False])
def test_collect_against_direct_computation(tied):
    config_class = LlamaConfig if tied else GPTNeoXConfig
    sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    tiny = checkpoint(config_class(**sizes, intermediate_size=24, tie_word_embeddings=tied))
    counts = np.random.default_rng(0).integers(0, 9, size=60)
    text = StudyText((np.zeros((2, 4), dtype=np.int64),), counts, "digest")
    arrays = updates.collect(tiny, text, updates.Parameters(max_tokens=30))
    assert len(arrays["token_ids"]) <= 30
    assert arrays["tokens_counted"] == counts.sum()
    assert ("output_rows" in arrays) is not tied
    weights = {"input": tiny.model.get_input_embeddings().weight}
    if not tied:
        weights["output"] = tiny.model.get_output_embeddings().weight
    for name, weight in weights.items():
        rows = weight.double().numpy()
        np.testing.assert_array_equal(arrays[f"{name}_rows"], weight.numpy()[arrays["token_ids"]])
        np.testing.assert_allclose(arrays[f"{name}_mean"], rows.mean(0))
        np.testing.assert_allclose(arrays[f"{name}_scatter"] / 59, np.cov(rows.T), atol=1e-12)
        assert arrays[f"{name}_count"] == 60
    moved = {name: array.copy() for name, array in arrays.items()}
    for name in weights:
        moved[f"{name}_rows"] += np.random.default_rng(1).normal(size=moved[f"{name}_rows"].shape).astype(np.float32)
    table = updates.pair_enrichments([Collection("m", 1, "a", arrays), Collection("m", 2, "b", moved)], ranks=[4])
    assert set(table["matrix"]) == set(weights)
    assert only(table)["tangent"].mean() == pytest.approx(1, abs=0.4)
