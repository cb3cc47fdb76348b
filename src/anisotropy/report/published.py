"""The numbers printed in the paper's tables, as tidy tables.

The files are facts copied by hand from the paper (Bernas et al. 2026): the early block of Table 1, Table 2 and Table 3.
The late block of Table 1 and the body of the paper were not available.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

# How the paper writes a model's name, and the catalogue's name for it.
CATALOGUE_NAMES = {
    "EuroBERT-210m": "eurobert-210m",
    "EuroBERT-610m": "eurobert-610m",
    "Gaperon-1.5B": "gaperon-1.5b",
    "moderncamembert-base": "moderncamembert",
    "OLMo-1B": "olmo-1b",
    "EuroBERT-210M": "eurobert-210m",
    "Pythia-410M": "pythia-410m",
    "SmolLM2-360M": "smollm2-360m",
}


def table1() -> pd.DataFrame:
    """Tangent alignment, early block.

    Returns:
        Columns ``model`` (as printed), ``probe``, ``metric`` (``energy_ratio``, ``p_energy_null``,
        ``delta_isoscore_star_tangent_percent``, ``delta_isoscore_star_normal_percent``), ``value``.
    """
    return _read("table1_early.csv")


def table2() -> pd.DataFrame:
    """Geometry of Semi-NMF concepts by layer and window of checkpoints.

    Returns:
        Columns ``model`` (as printed), ``checkpoints`` (such as ``10k-60k``), ``layer`` (``first``, ``middle``,
        ``last``), ``metric`` (``id_graph``, ``id_twonn``, ``pca_70`` where 101 means "more than 100",
        ``effective_rank``, ``pca_similarity``), ``value``.
    """
    return _read("table2.csv")


def table3() -> pd.DataFrame:
    """Enrichment of embedding updates for five tokens of one model.

    Returns:
        Columns ``model`` (as printed), ``token``, ``frequency``, ``stage`` (``early``, ``stable``), ``subspace``
        (``tangent``, ``normal``), ``enrichment`` (1 is chance).
    """
    return _read("table3.csv")


def _read(name: str) -> pd.DataFrame:
    with (files("anisotropy.report") / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file)
