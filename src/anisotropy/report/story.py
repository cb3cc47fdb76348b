"""The picture of the first page: a cloud of vectors over training, and where the gradients point meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anisotropy.report.figures import CONTROL, WIDTH, model_colour, model_marker, plt, step_axis
from anisotropy.report.layers import draw_fan, middle
from anisotropy.report.tables import signed
from anisotropy.report.tangents import ratio_axis, short
from anisotropy.studies.results import Collection

CONTROLS = ["untrained", "shuffled_labels", "other_probe", "next_variance"]


def draw_story(
    collections: Sequence[Collection],
    steps: Sequence[int],
    cosines: pd.DataFrame,
    courses: Mapping[str, pd.DataFrame],
    titles: Mapping[str, str],
) -> tuple[Figure, str]:
    """Vectors of one model as rays at a few checkpoints; mean cosine and energy ratio of every model over training.

    Args:
        collections: of the layers study, of the model that is drawn.
        steps: its checkpoints that are drawn.
        cosines: columns ``model``, ``step``, ``value``: mean cosine of the middle layer. Models with one checkpoint are
            not drawn below; without any other, only the rays are drawn.
        courses: by model, of the activation gradient in the own basis at one probe, see :func:`hardest_control`.
        titles: of the models.

    Returns:
        The figure and its alternative text.
    """
    cosines = cosines[cosines.groupby("model")["step"].transform("nunique") > 1]
    moving = len(cosines) > 0
    figure = plt.figure(figsize=(WIDTH, 7.4 if moving else 2.6))
    fans, below = figure.subfigures(2, 1, height_ratios=[1, 2.6]) if moving else (figure, None)
    by_step = {collection.step: collection for collection in collections}
    said = _draw_fans(fans, [by_step[step] for step in steps], moving)
    name = titles[collections[0].model]
    fans.suptitle(f"The vectors of one layer ({name})", fontweight="bold", x=0.01, ha="left", fontsize=11)
    alt = f"Vectors of the middle layer of {name} as rays at their angle with the mean vector: {', '.join(said)}."
    if below is None:
        return figure, alt
    above, axis = below.subplots(2, 1, sharex=True)
    models = list(dict.fromkeys(cosines["model"]))
    for number, model in enumerate(models):
        look = {"color": model_colour(number), "marker": model_marker(number), "markersize": 5}
        own = cosines[cosines["model"] == model]
        above.plot(own["step"], own["value"], **look)
        alt += f" {titles[model]}: mean cosine {_ends(own, 'value')}"
        if model in courses:
            course = courses[model]
            axis.plot(course["step"], course["energy_ratio"], **look)
            axis.plot(course["step"], course["control"], color=look["color"], linestyle="--", linewidth=1.3)
            alt += f"; energy ratio {_ends(course, 'energy_ratio')}, hardest control {_ends(course, 'control')}"
        alt += "."
    above.set(ylabel="mean cosine", title="Do they point the same way?", ylim=(min(0, above.get_ylim()[0]), 1))
    axis.set_title("Do gradients point where the vectors spread?")
    ratio_axis(axis, "energy over chance")
    axis.set_xlabel("training step (log scale)")
    step_axis(axis, cosines["step"])
    axis.set_xlim(-0.4, 1.25 * max(1, cosines["step"].max()))
    handles = [
        Line2D([], [], color=model_colour(n), marker=model_marker(n), markersize=5, label=titles[model])
        for n, model in enumerate(models)
    ]
    handles.append(Line2D([], [], color=CONTROL, linestyle="--", linewidth=1.3, label="hardest control"))
    below.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure, alt


def most_moved(cosines: pd.DataFrame) -> str:
    """The model whose mean cosine changes most over its checkpoints.

    Args:
        cosines: columns ``model``, ``step``, ``value``.
    """
    ranges = cosines.groupby("model", sort=False)["value"].agg(lambda values: values.max() - values.min())
    return str(ranges.index[int(ranges.argmax())])


def hardest_control(course: pd.DataFrame) -> pd.DataFrame:
    """A course at its first probe, with the largest energy ratio among the controls as column ``control``.

    Args:
        course: what :func:`anisotropy.studies.tangent_tables.course_table` returned, of one gradient and one basis.
    """
    rows = course[course["probe"] == course["probe"].iloc[0]].sort_values("step")
    columns = [name for control in CONTROLS if (name := f"energy_ratio_{control}") in rows]
    return rows.assign(control=rows[columns].max(axis=1))


def _draw_fans(place: Figure, chosen: Sequence[Collection], moving: bool) -> list[str]:
    said = []
    for axis, one in zip(place.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        layer = middle(len(one.arrays["cosine"]))
        cosine = float(one.arrays["cosine"][layer])
        draw_fan(axis, one.arrays["angles"][layer])
        when = f"step {one.step:,}" if moving else "one checkpoint"
        axis.set_title(f"{when}\ncosine {signed(cosine)}", fontweight="normal")
        said.append(f"mean cosine {signed(cosine)} at {when}")
    return said


def _ends(rows: pd.DataFrame, quantity: str) -> str:
    first, top, last = rows.iloc[0], rows.sort_values(quantity).iloc[-1], rows.iloc[-1]
    values = (f"{short(float(row[quantity]))} at step {int(row['step']):,}" for row in (first, top, last))
    return "from {}, highest {}, to {}".format(*values)
