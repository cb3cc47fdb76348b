"""Tables of the tangent alignment study with values that a test chooses."""

from __future__ import annotations

import numpy as np
import pandas as pd

PROBES = ("T1_in", "T1_out", "Tm", "Tl")
TITLES = {"a": "Model A", "b": "Model B"}


def course(ratio, *, steps=(0, 1, 10, 100), basis="early", gradient="activation", probes=PROBES, **changed):
    """A course table; ``ratio`` is E_r at each step, ``changed`` sets other columns."""
    rows = []
    for step, value in zip(steps, ratio, strict=True):
        for probe in probes:
            row = {"gradient": gradient, "basis": basis, "step": step, "probe": probe}
            row |= {"energy_ratio": value, "energy_ratio_low": 0.9 * value, "energy_ratio_high": 1.1 * value}
            row |= {"energy_ratio_null_low": 0.8, "energy_ratio_null_high": 1.25}
            row |= {f"energy_ratio_{name}": value / 2 for name in ("shuffled_labels", "other_probe", "next_variance")}
            for name in ("delta_tangent", "delta_normal", "excess"):
                row |= {name: 5.0, f"{name}_low": 4.0, f"{name}_high": 6.0}
            row |= {"delta_null": -1.0, "delta_null_low": -2.0, "delta_null_high": 0.0, "base_isoscore_star": 0.1}
            row |= {"energy_fraction": 0.5, "variance_share": 0.5, "p_energy_null": 1 / 21, "p_energy_calibrated": 0.01}
            row |= {"n": 4_000.0, "blocks": 10.0, "d": 64.0}
            if gradient == "weight":
                row |= {f"energy_ratio_{name}": value / 2 for name in ("unpaired", "noise", "centred")}
            rows.append(row | changed)
    return pd.DataFrame(rows)


def stages(model="a", *, seed=0, basis="early", gradient="activation", stage="early", probes=PROBES, **values):
    """A stage table of one reading; ``values`` sets an estimate, or a triple with its interval, by quantity."""
    chosen = {
        "energy_ratio": (5.0, 4.0, 6.0),
        "energy_ratio_null": (1.0, 0.8, 1.25),
        "energy_fraction": 0.6,
        "variance_share": 0.8,
        "p_energy_null": 1 / 21,
        "p_energy_calibrated": 0.01,
        "delta_isoscore_star_tangent_percent": (8.0, 7.0, 9.0),
        "delta_isoscore_star_normal_percent": (-2.0, -3.0, -1.0),
        "delta_null": (-1.0, -2.0, 0.0),
        "base_isoscore_star": 0.12,
        "p_isoscore_sign": 0.0009765625,
        "excess": (9.0, 8.0, 10.0),
        "tangent over normal": (10.0, 9.0, 11.0),
        "excess over untrained": (7.0, 6.0, 8.0),
        "advantage over untrained": (1.0, 0.9, 1.1),
        "advantage over shuffled labels": (0.5, 0.4, 0.6),
        "advantage over other probe": (0.5, 0.4, 0.6),
        "advantage over next variance": (0.5, 0.4, 0.6),
    } | {name.replace("__", " "): value for name, value in values.items()}
    place = {"model": model, "seed": seed, "gradient": gradient, "basis": basis, "stage": stage}
    rows = []
    for quantity, value in chosen.items():
        if value is None:
            continue
        estimate, low, high = value if isinstance(value, tuple) else (value, np.nan, np.nan)
        for probe in probes:
            row = {"probe": probe, "rank": 8, "quantity": quantity, "estimate": estimate, "low": low, "high": high}
            rows.append(place | row)
    return pd.DataFrame(rows)
