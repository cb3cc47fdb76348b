"""Concept cards as HTML: small enough for a phone, readable in both themes, nothing hidden behind a pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import HTML, display

from anisotropy.report.tables import signed

if TYPE_CHECKING:
    from anisotropy.studies.concept_cards import Card, Example

Names = Callable[[Iterable[int]], Sequence[str]]

_BORDER = "var(--pst-color-border, #888)"
_SURFACE = "var(--pst-color-surface, transparent)"
_LINE_COLOUR = "var(--pst-color-primary, currentColor)"
_MUTED = "var(--pst-color-text-muted, inherit)"
# Dark text on amber has a contrast above 10 in both themes; the underline marks the token without colour.
_MARK = "background:#ffd166;color:#1a1a1a;padding:0 .15em;border-radius:.2em;text-decoration:underline"
_GRID = "display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));margin:1rem 0"
# The theme lays HTML outputs on a light sheet in its dark mode; cards bring their own colours.
_NO_SHEET = (
    "<style>html[data-theme=dark] .bd-content div.cell_output .output.text_html:has(section.concept-cards)"
    "{background:none;color:var(--pst-color-text-base);padding:0}</style>"
)
_CARD = (
    f"border:1px solid {_BORDER};border-radius:.4rem;background:{_SURFACE};"
    "padding:.75rem .9rem;overflow-wrap:anywhere;min-width:0"
)
_WIDTH, _HEIGHT, _PAD = 260, 64, 4


def show_cards(cards: Sequence[Card], names: Names, title: str) -> None:
    """Put the cards of one model on the page.

    Args:
        cards: what :func:`anisotropy.studies.concept_cards.make_cards` returned.
        names: token ids to tokens as a reader sees them (space ``␣``), such as a session's ``token_text``.
        title: of the model.
    """
    display(HTML(cards_html(cards, names, title)))


def most_reproduced(cards: Sequence[Card], names: Names, number: int = 10) -> pd.DataFrame:
    """The concepts that another start finds most nearly, one a row.

    Args:
        cards: of all concepts of a model.
        names: as for :func:`show_cards`.
        number: of rows.

    Returns:
        ``concept`` (rank by code mass), ``code mass (%)``, ``cosine with another start``, ``tokens`` (the three most
        common among those it is strongest in, as HTML).
    """
    chosen = sorted(cards, key=lambda card: -card.reproduced)[:number]
    return pd.DataFrame(
        [
            {
                "concept": card.number,
                "code mass (%)": 100 * card.mass_share,
                "cosine with another start": card.reproduced,
                "tokens": " ".join(
                    f"<code>{escape(name)}</code>" for name in names([token for token, _ in card.tokens[:3]])
                ),
            }
            for card in chosen
        ]
    )


def cards_html(cards: Sequence[Card], names: Names, title: str) -> str:
    """The cards of one model as one piece of HTML; whatever comes from the text is escaped."""
    body = "".join(_card(card, names, title) for card in cards)
    label = f"Concepts of {escape(title)}"
    return f'{_NO_SHEET}<section class="concept-cards" aria-label="{label}" style="{_GRID}">{body}</section>'


def _card(card: Card, names: Names, title: str) -> str:
    head = (
        f'<p role="heading" aria-level="4" style="margin:0;font-weight:700">Concept {card.number}'
        f'<span style="font-weight:400;color:{_MUTED}"> of {escape(title)}</span></p>'
    )
    facts = (
        f"{card.mass_share:.1%} of the code mass; active on {card.active_share:.0%} of tokens; "
        f"found by another start with cosine {signed(card.reproduced)}"
    )
    parts = [
        head,
        f'<p style="margin:.2rem 0 .6rem">{facts.replace("%", " %")}</p>',
        _titled(
            "Tokens it fires on most", _listed(card.tokens, names, lambda share: f"{share:.0%}".replace("%", " %"))
        ),
        _titled("In context, strongest first", _contexts(card.examples, names)),
    ]
    if card.unembeddings:
        listed = _listed(card.unembeddings, names, signed)
        parts.append(_titled("Nearest unembedding tokens (cosine)", listed))
    if len(card.steps) == 1:  # nothing to follow; the head of the card says what another start finds
        return f'<article style="{_CARD}">{"".join(parts)}</article>'
    parts.append(
        _titled(
            f"Direction: nearest concept of another start, step {card.steps[0]:,} to {card.steps[-1]:,}",
            _sparkline(card.direction, 1.0, card.chance, direction_words(card)) + _note(direction_words(card)),
        )
    )
    top = max(1.0, *card.activation)
    parts.append(
        _titled(
            "Activation: its strongest tokens against all",
            _sparkline(card.activation, top, 1.0, activation_words(card)) + _note(activation_words(card)),
        )
    )
    return f'<article style="{_CARD}">{"".join(parts)}</article>'


def direction_words(card: Card) -> str:
    """How the direction moved, in words."""
    middle = len(card.steps) // 2
    return (
        f"Cosine {signed(card.direction[0])} at step {card.steps[0]:,}, {signed(card.direction[middle])} at "
        f"{card.steps[middle]:,}, {signed(card.direction[-1])} at {card.steps[-1]:,}; random directions reach "
        f"{signed(card.chance)} (dashed)."
    )


def activation_words(card: Card) -> str:
    """How the activation moved, in words."""
    middle = len(card.steps) // 2
    return (
        f"{card.activation[0]:.1f} times the expected code at step {card.steps[0]:,}, {card.activation[middle]:.1f} at "
        f"{card.steps[middle]:,}, {card.activation[-1]:.1f} at {card.steps[-1]:,}; 1 (dashed) is no difference."
    )


def _titled(title: str, content: str) -> str:
    heading = f'<p style="margin:.7rem 0 .15rem;font-weight:600;font-size:.9em">{escape(title)}</p>'
    return heading + content


def _note(text: str) -> str:
    return f'<p style="margin:.1rem 0 0;font-size:.85em;color:{_MUTED}">{escape(text)}</p>'


def _listed(pairs: Sequence[tuple[int, float]], names: Names, show: Callable[[float], str]) -> str:
    if not pairs:
        return '<p style="margin:0">none</p>'
    tokens = names([token for token, _ in pairs])
    return (
        '<p style="margin:0;line-height:1.7">'
        + " · ".join(
            f'<span style="white-space:nowrap"><code>{escape(token)}</code> {show(value)}</span>'
            for token, (_, value) in zip(tokens, pairs, strict=True)
        )
        + "</p>"
    )


def _contexts(examples: Sequence[Example], names: Names) -> str:
    if not examples:
        return '<p style="margin:0">no token has a positive code</p>'
    lines = []
    for example in examples:
        before, after = (_running(names(ids)) for ids in (example.before, example.after))
        # A marked space would be invisible, so the token itself keeps its sign for one where it is nothing else.
        token = _running(names([example.token]))
        shown = token if token.strip() else names([example.token])[0]
        gap = " " if shown.startswith(" ") else ""
        lines.append(
            f'<li style="margin:0 0 .35rem">…{escape(before)}{gap}<mark style="{_MARK}">'
            f"{escape(shown.strip() or shown)}</mark>{escape(after)}…</li>"
        )
    return f'<ul style="margin:0;padding-left:1.1rem">{"".join(lines)}</ul>'


def _running(tokens: Sequence[str]) -> str:
    """Tokens as running text; line breaks stay visible as ``↵``."""
    return "".join(tokens).replace("␣", " ")


def _sparkline(values: Sequence[float], top: float, reference: float, words: str) -> str:
    """A line over checkpoints, equally spaced, from 0 (or the lowest value) to ``top``, with a dashed reference."""
    low = min(0.0, *values)
    span = max(top - low, 1e-9)

    def y(value: float) -> float:
        return _PAD + (_HEIGHT - 2 * _PAD) * (1 - (value - low) / span)

    step = (_WIDTH - 2 * _PAD) / max(1, len(values) - 1)
    places = [(_PAD + step * number, y(value)) for number, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{height:.1f}" for x, height in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{height:.1f}" r="2.5" fill="currentColor"/>' for x, height in places)
    return (
        f'<svg role="img" aria-label="{escape(words)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'style="display:block;width:100%;max-width:{_WIDTH}px;height:auto;color:{_LINE_COLOUR}">'
        f'<line x1="0" x2="{_WIDTH}" y1="{y(reference):.1f}" y2="{y(reference):.1f}" stroke="currentColor" '
        'stroke-dasharray="4 4" opacity="0.6"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="2"/>{dots}</svg>'
    )
