"""Concept cards as HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from conceptcase import collection

from anisotropy.report.concept_cards import activation_words, cards_html, direction_words, most_reproduced
from anisotropy.studies.concept_cards import Card, Example, make_cards

WORDS = {3: "␣the", 4: "␣dog", 5: "␣<script>alert(1)</script>", 6: "&amp;", 7: "␣", 8: "↵", 9: "s"}


def names(ids):
    return [WORDS.get(token, f"t{token}") for token in ids]


def card(**change):
    values = {
        "number": 1,
        "mass_share": 0.051,
        "active_share": 0.31,
        "tokens": ((5, 0.8), (6, 0.2)),
        "examples": (Example((3,), 5, (4, 9), 3.0), Example((), 7, (4,), 2.0), Example((3,), 9, (), 2.0)),
        "unembeddings": ((6, 0.5),),
        "steps": (0, 1, 64),
        "direction": (0.1, 0.2, 0.9),
        "chance": 0.25,
        "activation": (1.0, 1.1, 7.0),
    }
    return Card(**(values | change))


class Tags(HTMLParser):
    """Fails on tags that are left open or closed twice."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes.append(dict(attrs))
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(html):
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert not tags.open
    return tags


def test_text_of_the_corpus_is_escaped():
    html = cards_html([card()], names, 'A "model" <b>')
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "&amp;amp;" in html
    assert "<b>" not in html
    parsed(html)


def test_the_token_is_marked_in_its_context():
    text = re.sub(r"<mark[^>]*>", "[", cards_html([card()], names, "M")).replace("</mark>", "]")
    assert "… the [&lt;script&gt;alert(1)&lt;/script&gt;] dogs…" in text
    assert "the[s]" in text
    # A space alone would be an empty mark.
    assert "[␣]" in text


def test_a_card_says_what_it_is_in_words_too():
    html = cards_html([card()], names, "M")
    for words in ("5.1 % of the code mass", "active on 31 % of tokens", "cosine +0.90", direction_words(card())):
        assert words in html
    assert "7.0 at 64" in activation_words(card())
    tags = parsed(html)
    pictures = [attributes for attributes in tags.attributes if attributes.get("role") == "img"]
    assert len(pictures) == 2
    assert all(attributes["aria-label"] for attributes in pictures)


def test_nothing_hides_behind_a_pointer_and_nothing_is_wider_than_a_phone():
    html = cards_html([card()], names, "M")
    assert not re.search(r"\btitle=|onmouse|:hover|onclick", html)
    assert "minmax(min(100%,20rem),1fr)" in html
    assert "overflow-wrap:anywhere" in html
    # Colours come from the theme; the one fixed pair stands together.
    for declared in re.findall(r"style=\"([^\"]*)\"", html):
        assert "#1a1a1a" not in declared or "#ffd166" in declared


def test_a_dead_concept_and_a_model_without_unembedding_have_cards_too():
    html = cards_html([card(tokens=(), examples=(), unembeddings=(), activation=(0.0, 0.0, 0.0))], names, "M")
    assert "no token has a positive code" in html
    assert "unembedding" not in html
    parsed(html)


def test_one_checkpoint_has_no_history():
    html = cards_html(make_cards([collection(5)], 1), names, "M")
    assert "found by another start with cosine" in html
    assert "<circle" not in html
    assert "step" not in html
    parsed(html)


def test_the_concepts_another_start_finds_come_first():
    cards = [card(number=1, direction=(0.1, 0.2)), card(number=2, direction=(0.1, 0.9)), card(number=3)]
    table = most_reproduced(cards, names, 2)
    assert table["concept"].tolist() == [2, 3]
    assert table["cosine with another start"].tolist() == [0.9, 0.9]
    assert table["tokens"].iloc[0] == "<code>␣&lt;script&gt;alert(1)&lt;/script&gt;</code> <code>&amp;amp;</code>"
