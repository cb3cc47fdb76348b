"""Small results that are committed: what they were made with, and JSON that shows its differences line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict


class Data(BaseModel):
    """Part of such a file: nothing changes it, and nothing unknown passes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Made(Data):
    """What the numbers were made with.

    Attributes:
        date: of the last executed notebook (UTC).
        revision: of the source.
        package: version of this package.
        libraries: versions by name.
        devices: what the measuring ran on.
        corpus: source of the text.
        texts: digest of the study text, by model.
        studies: source hash by study.
    """

    date: str
    revision: str | None
    package: str
    libraries: dict[str, str]
    devices: tuple[str, ...]
    corpus: str
    texts: dict[str, str]
    studies: dict[str, str]


def as_text(data: Data, lines: Sequence[str]) -> str:
    """A file's content: numbers to six digits; of the lists named in ``lines`` each entry is one line."""
    content = _rounded(data.model_dump(mode="json"))
    lists = {name: content.pop(name) for name in lines}
    parts = [f'"{name}": {json.dumps(value, ensure_ascii=False, sort_keys=True)}' for name, value in content.items()]
    for name, entries in lists.items():
        each = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
        parts.append(f'"{name}": [\n{each}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
