"""What `anisotropy plan` says before anything runs, against real folders, a real hub's answers and real results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from families import small_model
from hub_server import Hub, Repository, files_of

from anisotropy.errors import UserError
from anisotropy.models.catalogue import catalogue, parse_name
from anisotropy.models.stored import stored
from anisotropy.runs.experiments import load_experiments
from anisotropy.runs.machine import Machine, speeds_of_gpu, this_machine
from anisotropy.runs.measuring import STUDIES, Laboratory, study_parameters
from anisotropy.runs.plan import make_plan, size
from anisotropy.runs.plan_table import as_text, duration
from anisotropy.runs.project import Project
from anisotropy.runs.subjects import Subject

ROOT = Path(__file__).parents[2]
GB = 1e9
LAPTOP = Machine(4, int(12 * GB), int(200 * GB), int(200 * GB), (1e11, 5e10))
SERVER = Machine(
    16, int(200 * GB), int(5e12), int(5e12), (1e12, 5e11), "NVIDIA H100 80GB", int(80 * GB), (33e12, 33e12)
)


def plan(set_name="paper", models=(), machine=LAPTOP, project=None, ask_hub=False):
    experiments = load_experiments(ROOT)
    return make_plan(project or Project(Path("/nowhere")), experiments, set_name, models, machine, ask_hub=ask_hub)


class TestPaperSet:
    def test_lists_every_paper_model_of_the_catalogue(self):
        chosen = load_experiments(ROOT).get_set("paper")
        marked = [name for name, entry in catalogue().hub.items() if entry.paper]
        assert chosen.notebooks["frequency-variance"]["models"] == marked
        assert chosen.notebooks["printed-table-1"]["models"] == [name for name in marked if name != "pythia-1.4b"]
        assert set(chosen.all_models()) == set(marked)
        assert len(marked) == 11

    def test_has_every_chapter_of_the_laptop(self):
        experiments = load_experiments(ROOT)
        assert set(experiments.sets["paper"].notebooks) == set(experiments.sets["laptop"].notebooks)

    def test_another_word_is_refused(self, tmp_path):
        (tmp_path / "notebooks").mkdir()
        (tmp_path / "notebooks" / "covertype.ipynb").write_text("{}")
        (tmp_path / "experiments.yml").write_text(
            "chapters: {covertype: {}}\nsets: {one: {about: x, notebooks: {covertype: {models: papers}}}}\n"
        )
        with pytest.raises(UserError, match="models is 'papers'; a list of models, or paper or paper-tables"):
            load_experiments(tmp_path)


class TestOffline:
    def test_every_job_is_there_and_totals_are_sums(self):
        found = plan()
        assert {model.model for model in found.models} == set(load_experiments(ROOT).get_set("paper").all_models())
        assert {job.study for job in found.jobs} == set(STUDIES)
        totals = found.totals
        assert totals["results"] == sum(job.result_bytes for job in found.jobs)
        assert totals["download"] == sum(model.download for model in found.models)
        pythia = next(model for model in found.models if model.model == "pythia-160m")
        assert pythia.checkpoints == 24
        assert pythia.download == 24 * stored("pythia-160m").bytes
        tangents = next(job for job in found.jobs if (job.model, job.study) == ("pythia-160m", "tangents"))
        assert (tangents.checkpoints, tangents.parameters["tokens"]) == (8, 8_192)

    def test_a_laptop_has_too_little_and_is_told_of_what(self):
        found = plan()
        assert any("in the hub's cache" in shortage for shortage in found.shortages)
        assert any(shortage.startswith("smollm2-1.7b: does not fit") for shortage in found.shortages)
        verdicts = {model.model: model.verdict for model in found.models}
        assert verdicts["moderncamembert"] == "fits"
        assert verdicts["eurobert-210m"] == "fits in smaller batches"

    def test_a_server_has_enough(self):
        found = plan(machine=SERVER)
        assert found.shortages == []
        assert found.totals["seconds"] < plan().totals["seconds"] / 10
        text = as_text(found)
        assert "GPU memory" in text
        assert "All of it fits this machine." in text
        assert "a table of GPUs that was not measured here" in text

    def test_a_gpu_that_is_too_small_is_named(self):
        small = Machine(4, int(200 * GB), int(5e12), int(5e12), (1e11, 5e10), "GPU", int(6 * GB), speeds_of_gpu("GPU"))
        shortages = plan(models=["smollm2-1.7b"], machine=small).shortages
        assert shortages[0].startswith("smollm2-1.7b: does not fit: needs")
        assert "of memory on GPU, 5.1 GB are free" in shortages[0]

    def test_the_table_says_what_it_could_not_confirm(self):
        text = as_text(plan())
        assert "the hub was not asked" in text
        assert "gaperon-1.5b: unconfirmed in the catalogue: hub, branch" in text
        assert "Times are estimates" in text
        assert text.splitlines()[0].split() == ["model", "job", "checkpoints", "download", "disk", "memory", "time"]

    def test_an_unknown_size_is_left_out_and_said(self):
        found = plan(models=["owner/unheard-of"])
        assert found.jobs == []
        assert found.models[0].verdict == "size unknown"
        assert any("does not tell its size" in note for note in found.notes)
        assert "size unknown" in as_text(found)


class TestOnThisMachine:
    def test_what_is_measured_is_left_out(self, tmp_path, tiny_run, small_corpus, monkeypatch):
        folder, index = tiny_run
        monkeypatch.setenv("ANISOTROPY_CHECKPOINTS", str(folder.parents[1]))
        project = Project(tmp_path)
        parameters = study_parameters("updates", {})
        laboratory = Laboratory(project, corpus=str(small_corpus), device="cpu")
        found = laboratory.measure("tiny-pythia", "updates", parameters, [0, 4])
        after = plan("smoke", ["tiny-pythia"], project=project)
        job = next(job for job in after.jobs if job.study == "updates")
        assert (job.done, job.checkpoints) == (2, len(catalogue().miniatures["tiny-pythia"].recipe.checkpoint_steps()))
        kept = sum(array.nbytes for array in found.collections[0].arrays.values())
        each = job.result_bytes / (job.checkpoints - job.done)
        assert kept <= each <= 2 * kept  # not every token of the vocabulary occurs in this corpus
        model = after.models[0]
        assert model.disk == (job.checkpoints - len(index["checkpoints"])) * stored("tiny-pythia").bytes
        assert "Measured already" in as_text(after)

    def test_checkpoints_of_ones_own(self, tmp_path):
        for step in (10, 20, 30):
            small_model("llama").save_pretrained(tmp_path / "run" / f"checkpoint-{step}")
        found = plan("smoke", [str(tmp_path / "run")])
        model = found.models[0]
        assert (model.checkpoints, model.download, model.disk) == (3, 0, 0)
        assert model.parameters == sum(p.numel() for p in small_model("llama").parameters())
        assert model.verdict == "fits"

    def test_counts_of_choices(self):
        known = Subject(parse_name("mini-pythia"), None, 0, [0, 1, 2, 4, 8], 5, 0)
        assert known.count(["all"]) == 5
        assert known.count([2, [1, 2]]) == 4
        with pytest.raises(UserError, match="has no checkpoint 3"):
            known.count([[3]])
        number = Subject(parse_name("mini-pythia"), None, 0, None, 16, 0)
        assert [number.count(choices) for choices in (["all"], [8, 24], [[5, 7], 2])] == [16, 16, 4]
        unknown = Subject(parse_name("mini-pythia"), None, 0, None, None, 0)
        assert [unknown.count(choices) for choices in (["all"], [8, 24], [[5, 7]])] == [1, 24, 2]

    def test_this_machine(self, tmp_path):
        machine = this_machine(tmp_path / "not" / "yet")
        assert machine.disk > 0
        assert machine.memory > 10**8
        assert machine.cpu_speeds[0] > 1e8
        assert machine.gpu is None or torch.cuda.is_available()


def test_words():
    assert [size(n) for n in (0, 999, 12_345, 1.5e6, 2.34e9, 5e11, 7e13)] == [
        "0 B",
        "999 B",
        "12 kB",
        "1.5 MB",
        "2.3 GB",
        "500 GB",
        "70.0 TB",
    ]
    assert [duration(s) for s in (0, 0.4, 40, 600, 20_000, 300_000)] == [
        "–",
        "< 1 s",
        "40 s",
        "10 min",
        "5.6 h",
        "3.5 days",
    ]


class TestCommand:
    def run(self, *arguments, **more):
        command = [sys.executable, "-m", "anisotropy", "plan", *arguments]
        environment = {**os.environ, **more}
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment)

    def test_the_hubs_own_sizes_and_checkpoints_replace_the_catalogues(self, tmp_path):
        small_model("gpt_neox", 2).save_pretrained(tmp_path / "model")
        files = files_of(tmp_path / "model")
        hub = Hub()
        branches = {"main": files, "step0": files, "step8": files, "step64": files}
        hub.repositories["EleutherAI/pythia-160m"] = Repository(branches)
        hub.repositories["some/model"] = Repository(branches)
        try:
            known = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
            found = self.run("--set", "smoke", "-m", "pythia-160m", "-m", "some/model", "--json", **known)
        finally:
            hub.close()
        data = json.loads(found.stdout)
        weights = len(files["model.safetensors"])
        assert not any(file.endswith(".safetensors") for file in hub.asked)
        for model in data["models"]:
            assert (model["checkpoints"], model["download"]) == (3, 3 * weights)
            assert model["parameters"] == sum(p.numel() for p in small_model("gpt_neox", 2).parameters())
        assert any("its configuration says" in note and "the catalogue 162," in note for note in data["notes"])

    def test_json(self):
        found = self.run("--set", "paper", "--offline", "--json")
        data = json.loads(found.stdout)
        assert set(data) == {"machine", "models", "jobs", "totals", "shortages", "notes"}
        assert data["totals"]["download"] > 1e11

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--set", "papr"], "did you mean 'paper'"),
            (["-m", "pythia-160n"], "did you mean pythia-160m"),
            (["--set", "smoke", "-m", "."], "holds no checkpoints"),
        ],
    )
    def test_typos(self, arguments, said):
        found = self.run(*arguments)
        assert found.returncode == 1
        assert said in found.stderr

    def test_imports_no_torch(self):
        code = (
            "import sys; sys.argv = ['anisotropy', 'plan', '--set', 'laptop', '--offline']\n"
            "from anisotropy.cli import main\n"
            "try: main()\nexcept SystemExit: pass\n"
            "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
        )
        found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
