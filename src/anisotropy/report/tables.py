"""Tables for a page: a caption, units in the column names, readable without colour."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython.display import display

from anisotropy.models.labels import join_label
from anisotropy.provenance import digest_of


def show_table(
    table: pd.DataFrame,
    caption: str,
    formats: Mapping[str, str] | None = None,
    *,
    data: Mapping[str, object] | None = None,
    filters: Sequence[str] = (),
) -> None:
    """Put a table on the page.

    Args:
        table: one row per line; the index is not shown. Column names carry the units.
        caption: what the table shows, in a sentence.
        formats: format string by column, such as ``{"loss (nats)": "{:.2f}"}``; whole numbers get thousands
            separators without one, missing values show as ``–``.
        data: kept in the same output by media type, for programs that read the notebook; a page does not show it.
        filters: columns by whose values a reader of the page can choose rows, where scripts run.
    """
    how: dict[Any, Any] = dict.fromkeys(table.select_dtypes("integer").columns, "{:,}")
    styler = table.style.hide(axis="index").format(how | dict(formats or {}), na_rep="–").set_caption(caption)
    places = " ".join(str(list(table.columns).index(column)) for column in filters)
    styler.set_table_attributes('class="dataframe"' + (f' data-filter="{places}"' if filters else ""))
    # A fixed id instead of a random one: two runs with equal numbers give equal pages.
    styler.set_uuid(digest_of(caption)[:8])
    left: list[Any] = [{"selector": "", "props": "text-align: left"}]
    styler.set_table_styles({column: left for column in table.columns if not _is_numeric(table[column])}, axis=0)
    display({"text/html": styler.to_html(), "text/plain": caption, **(data or {})}, raw=True)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, a typographic minus included; what rounds to zero has none."""
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def run_title(titles: Mapping[str, str], model: Any, seed: Any) -> str:
    """Title of a row that a summary keeps by model and training seed; the model's name where it has none."""
    return titles.get(join_label(model, seed), model)


def _is_numeric(column: pd.Series) -> bool:
    return bool(column.map(lambda cell: isinstance(cell, int | float) or bool(_NUMBER.match(str(cell)))).all())


_NUMBER = re.compile(r"[+−-]?\d|–$")
