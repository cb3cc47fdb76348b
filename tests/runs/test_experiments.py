from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from anisotropy.errors import UserError
from anisotropy.runs.experiments import load_experiments, notebook_path
from anisotropy.runs.gate import read_notebook
from anisotropy.runs.parameters import checked, notebook_parameters
from anisotropy.runs.project import find_project

ROOT = Path(__file__).parents[2]


def project(tmp_path, content):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "one.ipynb").touch()
    (tmp_path / "experiments.yml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return tmp_path


GOOD = {
    "chapters": {"one": {"studies": ["frequency"]}},
    "sets": {
        "s": {"about": "", "notebooks": {"one": {"models": ["mini-pythia"], "controls": ["mini-pythia-shuffled"]}}}
    },
}


def change(**parameters):
    notebooks = {"one": GOOD["sets"]["s"]["notebooks"]["one"] | parameters}
    return GOOD | {"sets": {"s": {"about": "", "notebooks": notebooks}}}


def test_every_set_of_this_project_fits_its_notebooks():
    experiments = load_experiments(ROOT)
    assert {"laptop", "smoke"} <= set(experiments.sets)
    for chosen in experiments.sets.values():
        for name, parameters in chosen.notebooks.items():
            known = notebook_parameters(read_notebook(notebook_path(ROOT, name)), name)
            assert checked(parameters, known, name) == parameters


def test_the_notebooks_own_defaults_are_what_measure_would_collect():
    """Else `anisotropy measure` fills the store with what no notebook reads."""
    experiments = load_experiments(ROOT)
    for name, chapter in experiments.chapters.items():
        known = notebook_parameters(read_notebook(notebook_path(ROOT, name)), name)
        for request in experiments.requests_of("laptop", "mini-pythia"):
            study, parameters = request
            if study in chapter.studies:
                for field, value in parameters.model_dump().items():
                    if field in known:
                        assert known[field].default == value, f"{name}: {field}"


def test_requests_carry_the_parameters_a_set_changes(tmp_path):
    experiments = load_experiments(project(tmp_path, change(occurrences=3)))
    ((study, parameters),) = experiments.requests_of("s", "mini-pythia")
    assert (study, parameters.occurrences) == ("frequency", 3)
    assert experiments.requests_of("s", "mini-pythia-shuffled") == [(study, parameters)]
    assert experiments.requests_of("s", "mini-eurobert") == []
    assert experiments.get_set("s").all_models() == ["mini-pythia", "mini-pythia-shuffled"]


def test_every_notebook_that_has_models_is_given_them_in_every_set():
    """Else `--models` would leave a page on its own defaults."""
    experiments = load_experiments(ROOT)
    for chosen in experiments.sets.values():
        for name, parameters in chosen.notebooks.items():
            known = notebook_parameters(read_notebook(notebook_path(ROOT, name)), name)
            assert ("models" in known) == ("models" in parameters), name
            assert ("controls" in known) == ("controls" in parameters), name


def test_other_models_take_the_place_of_the_sets_own(tmp_path):
    experiments = load_experiments(project(tmp_path, change(occurrences=3)))
    chosen = experiments.get_set("s")
    assert chosen.on([]) == chosen
    assert chosen.on(["mini-eurobert", "owner/name"]).notebooks["one"] == {
        "models": ["mini-eurobert", "owner/name"],
        "controls": [],
        "occurrences": 3,
    }
    assert chosen.on(["mini-pythia"]).all_models() == ["mini-pythia", "mini-pythia-shuffled"]
    assert chosen.on(["mini-pythia@1"]).all_models() == ["mini-pythia@1"]
    assert chosen.on(["mini-pythia", "mini-pythia-shuffled"]).notebooks["one"]["controls"] == []
    ((study, parameters),) = experiments.requests_of("s", "owner/name", ["owner/name"])
    assert (study, parameters.occurrences) == ("frequency", 3)


def test_a_checkpoint_is_measured_for_the_notebooks_that_read_it(tmp_path):
    experiments = load_experiments(project(tmp_path, change(checkpoints=[2, 8])))
    steps = [0, 1, 2, 4, 8]
    assert list(experiments.requests_by_step("s", "mini-pythia", steps)) == [2, 8]
    assert list(experiments.requests_by_step("s", "mini-pythia-shuffled", steps)) == steps
    (tmp_path / "experiments.yml").write_text(yaml.safe_dump(change(checkpoints=2)))
    assert list(load_experiments(tmp_path).requests_by_step("s", "mini-pythia", steps)) == [0, 8]
    with pytest.raises(UserError, match="has no checkpoint 2"):
        experiments.requests_by_step("s", "mini-pythia", [0, 1])


def test_a_notebook_without_models_asks_nothing_of_any(tmp_path):
    content = {"chapters": {"one": {}}, "sets": {"s": {"about": "", "notebooks": {"one": {}}}}}
    experiments = load_experiments(project(tmp_path, content))
    assert experiments.get_set("s").models("one") == experiments.get_set("s").all_models() == []
    assert experiments.requests_of("s", "mini-pythia") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD | {"extra": 1}, "extra"),
        (GOOD | {"chapters": {"one": {"studies": ["frequences"]}}}, "frequences"),
        (GOOD | {"chapters": {}}, "not among the chapters"),
        (GOOD | {"chapters": {"one": {}, "two": {}}}, "has no notebook"),
        (change(models=["mini-pyhtia"]), "did you mean"),
        ("sets: [", "is not YAML"),
    ],
)
def test_mistakes_are_named(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        load_experiments(project(tmp_path, content))


def test_an_unknown_set_is_answered_with_the_nearest(tmp_path):
    experiments = load_experiments(project(tmp_path, GOOD | {"sets": {"laptop": GOOD["sets"]["s"]}}))
    with pytest.raises(UserError, match="did you mean 'laptop'"):
        experiments.get_set("latpop")


def test_outside_a_project(tmp_path):
    with pytest.raises(UserError, match=r"no experiments\.yml"):
        load_experiments(tmp_path)


def test_the_project_is_found_from_below(tmp_path, monkeypatch):
    project(tmp_path, GOOD)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_project(tmp_path / "a" / "b").root == tmp_path.resolve()
    monkeypatch.setenv("ANISOTROPY_RESULTS", str(tmp_path / "elsewhere"))
    assert find_project(tmp_path).results == tmp_path / "elsewhere"
    assert find_project(tmp_path).checkpoints == tmp_path.resolve() / "checkpoints"
