"""The scorecard and the spread over seeds, read from executed notebooks."""

from __future__ import annotations

import json

import nbformat
import pytest
from click.testing import CliRunner

from anisotropy.cli import main
from anisotropy.errors import UserError
from anisotropy.models.recorded import CheckpointEntry, Manifest
from anisotropy.report import seeds as committed
from anisotropy.report.scorecard import Outcome, Verdict
from anisotropy.report.seeds import Spread, read_spread, spread_json
from anisotropy.report.verdict_data import PROVENANCE, VERDICTS, bundle
from anisotropy.runs.project import Project
from anisotropy.runs.scorecard import claims_by_model, read_scorecard, scorecard_text
from anisotropy.runs.seeds import make_spread

TITLES = {"tiny-pythia": "tiny-Pythia", "Pythia-410M": "Pythia-410M (printed)"}
EXPERIMENTS = """
chapters: {one: {studies: [frequency]}, two: {}}
sets:
  small: {about: a, notebooks: {one: {models: [tiny-pythia, tiny-pythia@1]}, two: {}}}
  half: {about: b, notebooks: {one: {models: [tiny-pythia]}, two: {}}}
"""


def alone(outcome, estimate):
    return Verdict("C1", "tiny-pythia", "one", outcome, "why", estimate, estimate - 0.1, estimate + 0.1, seeds=1)


def over_seeds(*by_seed):
    both = alone(Outcome.INCONCLUSIVE, 0.05)
    return Verdict(**both.__dict__ | {"seeds": len(by_seed), "by_seed": by_seed, "reading": "two"})


MIXED = over_seeds((0, alone(Outcome.HOLDS, -0.123456789)), (1, alone(Outcome.FAILS, 0.2)))
PRINTED = Verdict("C1", "Pythia-410M", "as printed", Outcome.FAILS, "why", of_printed=True)


def page(date="2026-01-02T00:00:00+00:00", models=("tiny-pythia", "tiny-pythia@1")):
    about = {"title": "t", "kind": "miniature", "objective": "causal", "control": False, "steps": [0, 64]}
    about |= {"devices": ["cpu"], "measured": date, "training_seed": 0}
    return {
        "version": 1,
        "package": "0.1.0",
        "revision": "abc",
        "libraries": {"torch": "2"},
        "executed": date,
        "seconds": 1.0,
        "corpus": "sotu",
        "studies": {"frequency": "old code"},
        "models": [about | {"model": label} for label in models],
    }


def execute(project, name, verdicts=(), counted=True, provenance=None, set_name="small"):
    """Write an executed notebook as a kernel would."""
    shown = [{VERDICTS: bundle(verdicts, TITLES, caption="c", interval="i", counted=counted)}] if verdicts else []
    shown += [{PROVENANCE: provenance or page()}]
    cells = [nbformat.v4.new_markdown_cell("# Title\n\n## Verdict")]
    cells += [nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data)]) for data in shown]
    folder = project.build / set_name / "executed" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{name}.ipynb")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    for name in ("one", "two"):
        nbformat.write(nbformat.v4.new_notebook(), tmp_path / "notebooks" / f"{name}.ipynb")
    (tmp_path / "experiments.yml").write_text(EXPERIMENTS)
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


def test_claims_are_counted_by_model_and_printed_numbers_stand_apart(project):
    execute(project, "one", [alone(Outcome.HOLDS, -0.5), MIXED])
    execute(project, "two", [alone(Outcome.FAILS, 0.5), PRINTED], counted=False)
    scorecard = read_scorecard(project, "small")
    assert claims_by_model(scorecard.measured).to_dict("records") == [{"claim": "C1", "tiny-Pythia": "1 hold, 1 open"}]
    assert [found.verdict.model for found in scorecard.on_printed] == ["Pythia-410M"]
    assert len(scorecard.found) == 4
    text = scorecard_text(scorecard, each_reading=True)
    assert "holds −0.12, fails +0.20" in text
    assert "one#verdict" in text
    assert "executed 2026-01-02" in text


def test_the_command_prints_and_writes_what_the_notebooks_say(project, monkeypatch):
    monkeypatch.setattr(committed, "default_file", lambda: project.root / "none.json")
    execute(project, "one", [MIXED])
    done = CliRunner().invoke(main, ["scorecard", "--set", "small", "--json", "card.json"])
    assert done.exit_code == 0, done.output
    assert "1 open" in done.output
    assert "Not executed yet: two." in done.output
    card = json.loads((project.root / "card.json").read_text())
    assert card["verdicts"][0]["verdict"]["by_seed"]["1"]["outcome"] == "fails"
    assert card["provenance"]["one"]["revision"] == "abc"
    assert card["missing"] == ["two"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scorecard", "--set", "smal"], "did you mean 'small'"),
        (["scorecard", "--set", "half"], "no notebook of the set 'half' has been executed: run `anisotropy book"),
        (["scorecard", "--set", "small", "--json", "notebooks"], "is a folder; name a file"),
        (["seeds", "--set", "sed"], "unknown set 'sed'"),
        (["seeds", "--set", "small", "--write-only"], "two not executed yet; run `anisotropy seeds`"),
        (["seeds", "--set", "half", "--write-only"], "has been executed"),
    ],
)
def test_mistakes_are_one_line(project, arguments, message):
    execute(project, "one", [MIXED])
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert message in done.output.splitlines()[-1]


def test_the_spread_has_every_seed_and_where_it_comes_from(project):
    execute(project, "one", [MIXED], provenance=page("2026-01-01T00:00:00+00:00"))
    execute(project, "two", [PRINTED], counted=False)
    for label, loss in (("tiny-pythia", 5.0), ("tiny-pythia@1", 5.5)):
        manifest = Manifest(project.results, label)
        manifest.write_checkpoint(CheckpointEntry(step=64, weights={"float32": label}, validation_loss=loss))
        (manifest.folder / "model.json").write_text(
            json.dumps({"label": label, "kind": "miniature", "objective": "causal", "texts": {"sotu": "digest"}})
        )
    spread = make_spread(project, "small")
    assert [(run.model, run.seed, run.validation_loss) for run in spread.runs] == [
        ("tiny-pythia", 0, 5.0),
        ("tiny-pythia", 1, 5.5),
    ]
    assert spread.seeds == [0, 1]
    assert (spread.made.date, spread.made.texts) == ("2026-01-02T00:00:00+00:00", {"tiny-pythia": "digest"})
    assert [found.verdict.outcome for found in spread.disagreeing()] == ["inconclusive"]
    file = project.root / "seeds.json"
    file.write_text(spread_json(spread))
    again = read_spread(file)
    assert again.verdicts[0].verdict.by_seed["0"].estimate == -0.123457
    text = scorecard_text(read_scorecard(project, "small"), again)
    assert "Over the training seeds 0, 1 (committed, 2026-01-02, revision abc)" in text
    assert "disagree in 1 of 1 readings; measured before the last change of frequency" in text
    file.write_text("{}")
    with pytest.raises(UserError, match=r"was not written by this version.*make seeds"):
        read_spread(file)
    assert read_spread(project.root / "missing.json") is None


def test_one_seed_is_no_spread(project):
    execute(project, "one", [over_seeds((0, alone(Outcome.HOLDS, -0.5)))])
    execute(project, "two")
    with pytest.raises(UserError, match="one training seed a model; a spread needs several"):
        make_spread(project, "small")


def test_several_corpora_are_refused(project):
    execute(project, "one", [MIXED])
    execute(project, "two", provenance=page() | {"corpus": "other"})
    with pytest.raises(UserError, match=r"several corpora \(other, sotu\)"):
        make_spread(project, "small")


def test_the_committed_spread_is_small_and_can_be_read():
    spread = read_spread()
    if spread is None:
        pytest.skip("not made yet: `make seeds`")
    assert isinstance(spread, Spread)
    assert len(spread.seeds) >= 3
    assert committed.default_file().stat().st_size < 200_000
