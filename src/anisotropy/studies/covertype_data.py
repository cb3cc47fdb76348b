"""The Forest Cover Type data and what stands in for them: a table of numbers with classes."""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from anisotropy.errors import UserError

Scaling = Literal["raw", "standardised"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)
Floats = NDArray[np.float64]

FEATURES = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area_{number}" for number in range(4)),
    *(f"Soil_Type_{number}" for number in range(40)),
)
COVER_TYPES = {
    1: "Spruce/Fir",
    2: "Lodgepole Pine",
    3: "Ponderosa Pine",
    4: "Cottonwood/Willow",
    5: "Aspen",
    6: "Douglas-fir",
    7: "Krummholz",
}
_QUANTITIES = 10  # the features before the 44 indicators


@dataclass(frozen=True)
class Dataset:
    """A table of numbers with classes.

    Attributes:
        title: what to call it on a page.
        about: what it is, in a sentence.
        stand_in: whether it stands in for the Covertype data.
        rows: shape (n, d), float64; no column is constant.
        labels: shape (n,), int64.
        features: names of the d columns.
        classes: name by label.
        available: rows there were before the subsample.
        constant: number of columns left out because they do not vary in the subsample.
    """

    title: str
    about: str
    stand_in: bool
    rows: Floats
    labels: NDArray[np.int64]
    features: tuple[str, ...]
    classes: Mapping[int, str]
    available: int
    constant: int = 0

    def scaled(self, scaling: Scaling) -> Floats:
        """The rows as they are, or every column with mean 0 and variance 1 (over n − 1)."""
        if scaling == "raw":
            return self.rows
        return (self.rows - self.rows.mean(0)) / self.rows.std(0, ddof=1)

    def sizes(self) -> pd.Series:
        """Rows by label, the most frequent class first."""
        labels, counts = np.unique(self.labels, return_counts=True)
        order = np.lexsort((labels, -counts))
        return pd.Series(counts[order], index=labels[order])


def load(data: str = "offline", max_rows: int = 20_000, seed: int = 0) -> Dataset:
    """Read the data; nothing is downloaded unless ``data`` is ``"covertype"``.

    Args:
        data: ``"offline"`` (scikit-learn's digits as a stand-in), ``"covertype"`` (scikit-learn's ``fetch_covtype``,
            which downloads once), or a file in the format of UCI's ``covtype.data``, gzipped or not.
        max_rows: where there are more rows, a subsample of this size, drawn uniformly without replacement.
        seed: of the subsample and, offline, of the class frequencies.

    Raises:
        UserError: no network, no such file, another format, or fewer than two classes.
    """
    if max_rows < 2:
        raise UserError(f"max_rows: {max_rows} is too few; at least 2 rows are needed")
    if data == "offline":
        full = stand_in(seed)
    elif data == "covertype":
        full = _fetched()
    else:
        full = read_covtype(Path(data))
    rows, labels = full.rows, full.labels
    if len(rows) > max_rows:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), max_rows, replace=False))
        rows, labels = rows[chosen], labels[chosen]
    found = np.unique(labels)
    if len(found) < 2:
        raise UserError(f"data: all {len(labels)} rows are of class {found[0]}; at least two classes are needed")
    varies = np.ptp(rows, axis=0) > 0
    if varies.sum() < 2:
        raise UserError(f"data: {varies.sum()} of {len(varies)} columns vary; at least two must")
    return Dataset(
        full.title,
        full.about,
        full.stand_in,
        rows[:, varies],
        labels,
        tuple(np.array(full.features)[varies]),
        {label: full.classes[label] for label in found.tolist()},
        available=len(full.rows),
        constant=int((~varies).sum()),
    )


def stand_in(seed: int) -> Dataset:
    """Scikit-learn's digits (8 × 8 pixels, ten classes), thinned so that the classes have Zipf's frequencies.

    The digit of rank r keeps 1/r of the rows of the smallest class. Which digit gets which rank is drawn from ``seed``
    and has nothing to do with the pictures: whatever goes with frequency here is an effect of class size or chance.
    """
    from sklearn.datasets import load_digits

    pictures = load_digits()
    labels = pictures.target.astype(np.int64)
    random = np.random.default_rng(seed)
    ranked = random.permutation(np.unique(labels))
    largest = int(np.bincount(labels).min())
    kept = [
        random.choice(np.flatnonzero(labels == label), round(largest / rank), replace=False)
        for rank, label in enumerate(ranked, start=1)
    ]
    chosen = np.sort(np.concatenate(kept))
    return Dataset(
        "Handwritten digits (stand-in)",
        "scikit-learn's digits, 8 × 8 grey values from 0 to 16; the digit of frequency rank r was thinned to 1/r of "
        f"{largest} rows, the size of the smallest class, and ranks were dealt out at random",
        True,
        pictures.data[chosen].astype(np.float64),
        labels[chosen],
        tuple(pictures.feature_names),
        {label: f"digit {label}" for label in range(10)},
        available=len(chosen),
    )


def _fetched() -> Dataset:
    from sklearn.datasets import fetch_covtype

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn announces each retry
            found = fetch_covtype(n_retries=1)
    except OSError as error:  # no network, a refused connection, a damaged download
        raise UserError(
            f"data: scikit-learn could not fetch the Covertype data ({error}); it needs the network once. Offline, "
            "pass the path of UCI's covtype.data.gz, or data='offline' for the stand-in"
        ) from None
    return _covertype(np.column_stack([found.data, found.target]).astype(np.float64), "scikit-learn's copy")


def read_covtype(path: Path) -> Dataset:
    """Read a file in the format of UCI's ``covtype.data``: 54 features and a cover type from 1 to 7, no header.

    Raises:
        UserError: no such file, or another format; the message says what is wrong in which row.
    """
    if not path.is_file():
        raise UserError(f"data: {str(path)!r} is neither 'offline' nor 'covertype' nor a file: no {path.absolute()}")
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            table = pd.read_csv(stream, header=None, low_memory=False)
    except pd.errors.EmptyDataError:
        raise UserError(f"{path} is empty; expected the rows of covtype.data") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not in the format of covtype.data: {' '.join(str(error).split())}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if table.shape[1] != len(FEATURES) + 1:
        raise UserError(
            f"{path} has {table.shape[1]} columns; covtype.data has {len(FEATURES) + 1}, {len(FEATURES)} features and "
            "the cover type, separated by commas"
        )
    numbers = table.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        row, column = wrong[0]
        held = table.to_numpy()[row, column]
        what = "holds no value" if table.isna().to_numpy()[row, column] else f"holds {held!r}, which is no number"
        raise UserError(f"{path}, row {row + 1}, column {column + 1} {what} (covtype.data has no header line)")
    return _covertype(numbers, path.name)


def _covertype(numbers: Floats, source: str) -> Dataset:
    indicators, labels = numbers[:, _QUANTITIES:-1], numbers[:, -1]
    if wrong := np.setdiff1d(labels, list(COVER_TYPES)).tolist():
        raise UserError(f"data: the last column of {source} holds {wrong[0]:g}; cover types are whole, from 1 to 7")
    if not np.isin(indicators, (0, 1)).all():
        raise UserError(f"data: columns {_QUANTITIES + 1} to {len(FEATURES)} of {source} must hold 0 or 1")
    return Dataset(
        "Forest Cover Type",
        f"UCI's Covertype data ({source}): patches of 30 × 30 m in Colorado, 10 quantities and 44 indicators of "
        "wilderness area and soil, seven cover types",
        False,
        numbers[:, :-1],
        labels.astype(np.int64),
        FEATURES,
        COVER_TYPES,
        available=len(numbers),
    )
