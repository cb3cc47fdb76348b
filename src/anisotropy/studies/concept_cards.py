"""Concept cards: what a concept of the last checkpoint is, and how it came to be over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anisotropy.concepts.semi_nmf import SemiNMF
from anisotropy.errors import UserError
from anisotropy.studies.concept_tables import CARD_LAYER, CONTEXT_CENTRE, LAYERS, code_excess
from anisotropy.studies.results import Collection

_SHARE_OF_TOP, _LEAST_TOP = 0.01, 10


@dataclass(frozen=True)
class Example:
    """A token in its context: ids before it, its own, ids after it.

    ``times_expected`` is its code over the one expected of the token, see ``code_excess``.
    """

    before: tuple[int, ...]
    token: int
    after: tuple[int, ...]
    times_expected: float


@dataclass(frozen=True)
class Card:
    """One concept of the middle layer at the last checkpoint; lists are strongest first.

    Attributes:
        number: its rank by code mass, from 1.
        mass_share: its share of the code mass of all concepts.
        active_share: share of tokens with a positive code.
        tokens: ids and shares of the most common tokens among the hundredth whose codes exceed the expected ones most.
        examples: tokens in context whose codes exceed the expected ones most, from different sequences.
        unembeddings: ids and cosines of the unembedding rows that point most nearly along it.
        steps: checkpoints of the two courses.
        direction: per step, largest cosine with a concept found at that checkpoint **from another seed**.
        chance: what ``direction`` would be among as many random directions.
        activation: per step, mean over the concept's strongest tokens of their code over the expected one, when the
            activations of that checkpoint are written in the concepts of the last one; 1 is no difference.
    """

    number: int
    mass_share: float
    active_share: float
    tokens: tuple[tuple[int, float], ...]
    examples: tuple[Example, ...]
    unembeddings: tuple[tuple[int, float], ...]
    steps: tuple[int, ...]
    direction: tuple[float, ...]
    chance: float
    activation: tuple[float, ...]

    @property
    def reproduced(self) -> float:
        """How nearly another seed finds this concept again at the last checkpoint."""
        return self.direction[-1]


def make_cards(collections: Sequence[Collection], cards: int = 6) -> list[Card]:
    """Cards of the concepts with the largest code mass.

    Args:
        collections: one model's, by step, of one reservoir; the last one's concepts are shown.
        cards: how many, or as many as there are concepts.

    Raises:
        UserError: fewer than one card, no collections, or checkpoints measured on different tokens.
    """
    if cards < 1 or not collections:
        raise UserError(f"{cards} cards of {len(collections)} checkpoints: at least one of each is needed")
    last = collections[-1].arrays
    if any(not np.array_equal(each.arrays["reservoir"], last["reservoir"]) for each in collections):
        raise UserError("the checkpoints were measured on different tokens; measure them on one text")
    directions = last[f"{CARD_LAYER}_directions"][0].astype(np.float64)
    masses = last[f"{CARD_LAYER}_mean_code"][0]
    found = directions_found(directions, collections)
    activation = activation_courses(directions, collections)
    chance = chance_cosine(*directions.shape)
    steps = tuple(each.step for each in collections)
    return [
        Card(
            number=concept + 1,
            mass_share=float(masses[concept] / masses.sum()),
            active_share=float(last["card_active"][concept]),
            tokens=_pairs(last["card_tokens"][concept], last["card_token_shares"][concept]),
            examples=_examples(last, concept),
            unembeddings=_pairs(last["card_unembeddings"][concept], last["card_cosines"][concept])
            if "card_unembeddings" in last
            else (),
            steps=steps,
            direction=tuple(map(float, found[:, concept])),
            chance=chance,
            activation=tuple(map(float, activation[:, concept])),
        )
        for concept in range(min(cards, len(directions)))
    ]


def _pairs(ids: np.ndarray, values: np.ndarray) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), float(value)) for token, value in zip(ids, values, strict=True) if token >= 0)


def _examples(arrays: Mapping[str, np.ndarray], concept: int) -> tuple[Example, ...]:
    contexts, ratios = arrays["card_contexts"][concept], arrays["card_ratios"][concept]
    return tuple(
        Example(
            tuple(int(token) for token in context[:CONTEXT_CENTRE] if token >= 0),
            int(context[CONTEXT_CENTRE]),
            tuple(int(token) for token in context[CONTEXT_CENTRE + 1 :] if token >= 0),
            float(ratio),
        )
        for context, ratio in zip(contexts, ratios, strict=True)
        if context[CONTEXT_CENTRE] >= 0
    )


def directions_found(directions: np.ndarray, collections: Sequence[Collection]) -> np.ndarray:
    """For each checkpoint and direction (k, d) the largest cosine with a concept from the *second* seed.

    The sign counts: codes are not negative, so a direction and its opposite are different concepts. Shape (steps, k).
    """
    return np.array(
        [(directions @ each.arrays[f"{CARD_LAYER}_directions"][1].astype(np.float64).T).max(1) for each in collections]
    )


def activation_courses(directions: np.ndarray, collections: Sequence[Collection]) -> np.ndarray:
    """Write every checkpoint's activations in the same directions (k, d), and compare the strongest tokens with all.

    The strongest tokens of a concept are the hundredth (at least 10) whose codes exceed the expected ones most at the
    last checkpoint. Being chosen there, they stand out there by construction; that they did not before is the
    information.

    Returns:
        Mean over those tokens of the code over the expected one, shape (steps, k); 0 where no token has a code.
    """
    # The directions are given, so only codes are computed: exact non-negative least squares, row by row.
    solver = SemiNMF(len(directions))
    solver.components_, solver.n_features_in_ = directions.astype(np.float32), directions.shape[1]
    courses: list[np.ndarray] = []
    strongest: np.ndarray | None = None
    for each in reversed(collections):
        codes = solver.transform(each.arrays["tracked"]).astype(np.float64)
        excess, expected = code_excess(codes)
        if strongest is None:
            count = min(len(codes), max(_LEAST_TOP, round(_SHARE_OF_TOP * len(codes))))
            strongest = np.argsort(-excess, axis=0, kind="stable")[:count]
        ratios = np.where(expected > 0, codes / np.where(expected > 0, expected, 1), 0)
        courses.append(np.take_along_axis(ratios, strongest, axis=0).mean(axis=0))
    return np.array(courses[::-1])


def chance_cosine(concepts: int, coordinates: int, draws: int = 400, seed: int = 0) -> float:
    """Mean of the largest of ``concepts`` cosines between one direction and as many random ones."""
    random = np.random.default_rng(seed)
    drawn = random.standard_normal((draws, concepts, coordinates))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    return float(drawn[:, :, 0].max(axis=1).mean())


def card_place() -> str:
    """The layer and probe that cards are made for, in words."""
    return f"{CARD_LAYER} layer ({LAYERS[CARD_LAYER]})"
