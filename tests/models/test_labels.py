"""Labels with training seeds."""

from __future__ import annotations

import pytest

from anisotropy.models.catalogue import parse_name
from anisotropy.models.labels import join_label, names_of, names_of_controls, split_label


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("mini-pythia", ("mini-pythia", 0)),
        ("mini-pythia@12", ("mini-pythia", 12)),
        ("EleutherAI/pythia-160m", ("EleutherAI/pythia-160m", 0)),
        ("/runs/a@b/model", ("/runs/a@b/model", 0)),
        ("owner/name@main", ("owner/name@main", 0)),
    ],
)
def test_labels_are_taken_apart_and_put_together(label, parts):
    assert split_label(label) == parts
    assert join_label(*parts) == label


def test_the_catalogue_writes_labels_the_same_way():
    name = parse_name("mini-pythia@2")
    assert split_label(name.label) == (name.name, name.seed)


def test_names_lose_their_seeds():
    assert names_of(["b@1", "a", "b", "a@2"]) == ["b", "a"]
    assert names_of_controls({"a@1": "a-shuffled@1", "a@2": "a-shuffled@2"}) == {"a": "a-shuffled"}
