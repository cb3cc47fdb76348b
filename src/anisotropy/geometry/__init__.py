"""The geometry room: arrays in, numbers out; no model, no text.

`isotropy` asks how evenly vectors fill their space, `subspaces` how much of them lies along a few directions, and
`dimension` how many directions or coordinates there are.
"""

from anisotropy.geometry.dimension import (
    DimensionEstimate,
    effective_rank,
    graph_dimension,
    pca_components,
    twonn,
)
from anisotropy.geometry.isotropy import (
    cosine_by_coordinate,
    isoscore,
    isoscore_star,
    mean_cosine,
    participation_ratio,
)
from anisotropy.geometry.subspaces import (
    energy_fraction,
    energy_ratio,
    enrichment,
    null_energies,
    principal_angles,
    principal_basis,
    project_out,
    subspace_similarity,
)

__all__ = [
    "DimensionEstimate",
    "cosine_by_coordinate",
    "effective_rank",
    "energy_fraction",
    "energy_ratio",
    "enrichment",
    "graph_dimension",
    "isoscore",
    "isoscore_star",
    "mean_cosine",
    "null_energies",
    "participation_ratio",
    "pca_components",
    "principal_angles",
    "principal_basis",
    "project_out",
    "subspace_similarity",
    "twonn",
]
