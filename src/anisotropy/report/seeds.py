"""How verdicts spread over training seeds: a small file that is committed, so that a page can show it without training.

``make seeds`` trains and measures the miniatures and their shuffled-label runs at several seeds and writes it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from anisotropy.errors import UserError
from anisotropy.report.committed import Data, Made, as_text
from anisotropy.report.verdict_data import Found

FILE = "seeds.json"
VERSION = 1


class Run(Data):
    """One training run behind the numbers.

    Attributes:
        model: label without the seed.
        seed: of the training.
        control: whether it was trained on shuffled labels.
        steps: of its last checkpoint.
        validation_loss: at that checkpoint (nats per token).
        unigram: what knowing only token frequencies costs (nats per token).
        identity: digest of what decides its weights.
    """

    model: str
    seed: int
    control: bool
    steps: int
    validation_loss: float | None
    unigram: float | None
    identity: str | None


class Spread(Data):
    """Verdicts over several training seeds, each with what the rule says of every seed alone."""

    version: int = VERSION
    made: Made
    runs: tuple[Run, ...]
    verdicts: tuple[Found, ...]

    @property
    def seeds(self) -> list[int]:
        """The training seeds."""
        return sorted({run.seed for run in self.runs})

    def disagreeing(self) -> list[Found]:
        """Verdicts whose seeds, each alone, do not all say the same."""
        return [found for found in self.verdicts if len({one.outcome for one in found.verdict.by_seed.values()}) > 1]


def default_file() -> Path:
    """Where the committed file is."""
    return Path(str(files("anisotropy.report") / "data" / FILE))


def read_spread(file: Path | None = None) -> Spread | None:
    """The committed spread, or that of another file; ``None`` where none has been made.

    Raises:
        UserError: a file that this version cannot read.
    """
    file = file or default_file()
    if not file.is_file():
        return None
    try:
        return Spread.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValueError, ValidationError):
        raise UserError(f"{file} was not written by this version of the project; make it again: `make seeds`") from None


def spread_json(spread: Spread) -> str:
    """A spread as text: numbers to six digits, one verdict a line so that differences can be read."""
    return as_text(spread, lines=("runs", "verdicts"))
