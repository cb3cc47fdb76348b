"""The front door: the ``anisotropy`` command.

Torch and transformers take seconds to import, so each command imports what it needs after its arguments are checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from anisotropy.errors import UserError
from anisotropy.process import keep_freed_memory, share_cores


def _one_line_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a :class:`UserError` into one line on stderr and exit code 1."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except UserError as error:
            click.echo(" – ".join([f"anisotropy: {error}", *getattr(error, "__notes__", ())]), err=True)
            sys.exit(1)

    return wrapped


_CORPUS = click.option(
    "--corpus",
    default="sotu",
    show_default=True,
    help="'sotu', a UTF-8 text file or folder of .txt files, or hub:owner/name:config.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="anisotropy")
def main() -> None:
    """Measure anisotropy during training, and build the book about it.

    Typical order: pretrain → measure → run → site; `anisotropy book` does all of it.
    """
    share_cores()


@main.command()
@_one_line_errors
def models() -> None:
    """List the models that have a name here, and what of them is on this machine."""
    from anisotropy.runs.inventory import inventory

    click.echo(inventory().to_string(index=False))


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="MODEL…")
@_CORPUS
@_one_line_errors
def pretrain(names: tuple[str, ...], corpus: str) -> None:
    """Pretrain miniature models; NAME@SEED for another training seed. Goes on where a killed run stopped."""
    from anisotropy.models.catalogue import catalogue, parse_name
    from anisotropy.models.checkpoints import miniature_folder
    from anisotropy.runs.project import find_project

    parsed = [parse_name(name) for name in names]
    if packaged := next((name.label for name in parsed if name.kind == "package"), None):
        raise UserError(
            f"{packaged!r} comes pretrained; `anisotropy convert {packaged}` makes it ready, as its first use does"
        )
    if other := next((name.label for name in parsed if name.kind != "miniature"), None):
        raise UserError(f"{other!r} is not a miniature; miniatures are {', '.join(catalogue().miniatures)}")
    from anisotropy.models.hub_corpus import open_corpus
    from anisotropy.models.miniature import pretrain as train

    keep_freed_memory()
    text = open_corpus(corpus, click.echo)
    root = find_project().checkpoints
    for name in parsed:
        folder = miniature_folder(root, name)
        index = train(catalogue().miniatures[name.name].recipe, text, folder, seed=name.seed, label=name.label)
        last = index["checkpoints"][-1]
        click.echo(
            f"{name.label}: {len(index['checkpoints'])} checkpoints in {folder}; validation loss "
            f"{last['validation_loss']:.2f} nats at step {last['step']}, unigram {index['unigram_cross_entropy']:.2f}"
        )


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="MODEL…")
@_one_line_errors
def convert(names: tuple[str, ...]) -> None:
    """Make pretrained models out of installed packages ready. Their first use does it too, so this is optional."""
    from anisotropy.models.catalogue import catalogue, parse_name
    from anisotropy.runs.project import find_project

    parsed = [parse_name(name) for name in names]
    if other := next((name.label for name in parsed if name.kind != "package"), None):
        known = ", ".join(catalogue().packages)
        raise UserError(
            f"{other!r} does not come in a package, so there is nothing to convert; such models are {known}"
        )
    from anisotropy.models.packages import convert as make_ready

    root = find_project().checkpoints
    for name in parsed:
        folder = make_ready(name, root, click.echo)
        click.echo(f"{name.label}: ready in {folder}")


@main.command()
@click.option("-m", "--model", "names", multiple=True, required=True, help="Model to measure; may be repeated.")
@click.option("--studies", default=None, help="Comma-separated studies; default: all.")
@click.option("--set", "set_name", default=None, help="Take studies and parameters from this set of experiments.yml.")
@click.option("--models", "instead", multiple=True, help="With --set: models that take the place of the set's own.")
@click.option("--checkpoint", "steps", type=int, multiple=True, help="Step to measure; may be repeated. Default: all.")
@_CORPUS
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, mps or auto.")
@click.option("--dtype", help="Type of the weights: float32 (the default), bfloat16 or float16.")
@click.option(
    "--evict", is_flag=True, default=None, help="Delete weights from the hub's cache once used, unless they were there."
)
@_one_line_errors
def measure(
    names: tuple[str, ...],
    studies: str | None,
    set_name: str | None,
    instead: tuple[str, ...],
    steps: tuple[int, ...],
    corpus: str,
    device: str,
    dtype: str | None,
    evict: bool | None,
) -> None:
    """Collect studies from a model's checkpoints; what is kept already is not measured again."""
    from anisotropy.models.catalogue import parse_name

    for name in names:
        parse_name(name)
    if studies and set_name:
        raise UserError("--studies and --set exclude each other")
    if instead and not set_name:
        raise UserError("--models needs --set")
    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.measuring import STUDIES, Laboratory, study_parameters
    from anisotropy.runs.project import find_project
    from anisotropy.runs.selection import split_models

    project = find_project()
    experiments = load_experiments(project.root) if set_name else None
    labels = split_models(names, project.root)
    laboratory = Laboratory(project, corpus=corpus, device=device, dtype=dtype, evict=evict, report=click.echo)
    for name in labels:
        laboratory.check_checkpoints(name, list(steps) or "all")
    keep_freed_memory()
    for name in labels:
        choices = None
        if experiments and set_name:
            on_these = split_models(instead, project.root)
            if not on_these and name not in experiments.get_set(set_name).all_models():
                on_these = [name]
            demands = experiments.demands(set_name, name, on_these)
            requests, choices = [request for request, _ in demands], [choice for _, choice in demands]
        else:
            chosen = [study.strip() for study in studies.split(",")] if studies else list(STUDIES)
            requests = [(study, study_parameters(study)) for study in chosen]
        found = laboratory.measure_all(name, requests, list(steps) or "all", choices)
        for (study, _), measured in zip(requests, found, strict=True):
            for note in measured.notes:
                click.echo(f"note: {note}")
            click.echo(
                f"{name}: {study} is there for {len(measured.collections)} checkpoints ({measured.loaded} measured now)"
            )


@main.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("-m", "--models", multiple=True, help="Models of the page; may be repeated.")
@click.option("-p", "assignments", multiple=True, metavar="KEY=VALUE", help="One parameter; the value is YAML.")
@click.option("-f", "file", type=click.Path(path_type=Path, dir_okay=False), help="Parameters in a YAML file.")
@click.option("--set", "set_name", default=None, help="Take the parameters from this set of experiments.yml.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Executed notebook. Default: _build/runs/.")
@_one_line_errors
def run(
    notebook: Path,
    models: tuple[str, ...],
    assignments: tuple[str, ...],
    file: Path | None,
    set_name: str | None,
    output: Path | None,
) -> None:
    """Execute a notebook with parameters; accepted only if every cell ran to the end.

    Later options win: --set, then -f, then -m, then -p. With -m, controls of other models are left out.
    """
    from anisotropy.runs.experiments import load_experiments, on_models
    from anisotropy.runs.gate import read_notebook, run_notebook
    from anisotropy.runs.parameters import checked, notebook_parameters, parse_assignments, parse_yaml
    from anisotropy.runs.project import find_project
    from anisotropy.runs.selection import BOOK, build_name, split_models

    project = find_project()
    known = notebook_parameters(read_notebook(notebook), notebook.name)
    values: dict[str, Any] = {}
    if set_name:
        values |= load_experiments(project.root).get_set(set_name).notebooks.get(notebook.stem, {})
    if file:
        try:
            given = parse_yaml(file.read_text(encoding="utf-8"), str(file))
        except OSError as error:
            raise UserError(f"{file}: {error.strerror}") from None
        if not isinstance(given, dict):
            raise UserError(f"{file} must hold a mapping of parameters")
        values |= given
    if set_name is not None and BOOK in known:
        values[BOOK] = build_name(set_name, split_models(models, project.root))
    elif models:
        default = {"controls": known["controls"].default} if "controls" in known else {}
        values = on_models(default | values, split_models(models, Path.cwd()))
    values |= parse_assignments(assignments, known, notebook.name)
    checked(values, known, notebook.name)
    from anisotropy.models.catalogue import parse_name
    from anisotropy.models.checkpoints import check_names

    names = [parse_name(name) for name in values.get("models", [])]
    check_names(names, values.get("checkpoints", "all"), project.checkpoints)
    target = output or project.build / "runs" / notebook.name
    click.echo(f"{notebook.name}: running")
    run_notebook(notebook, target, values, project.build / "failed")
    click.echo(f"{notebook.name}: {target}")


_SET = click.option("--set", "set_name", default="laptop", show_default=True, help="Set of experiments.yml.")
_MODELS = click.option(
    "-m",
    "--models",
    multiple=True,
    help="Models that take the place of the set's own: catalogue names, owner/name on the hub, or folders of "
    "checkpoints; may be repeated, or separated by commas.",
)


@main.command()
@_SET
@_MODELS
@_one_line_errors
def site(set_name: str, models: tuple[str, ...]) -> None:
    """Render the book of a set from its executed notebooks; the old site stays until the new one is whole."""
    from anisotropy.runs.project import find_project
    from anisotropy.runs.scorecard import read_scorecard, scorecard_json
    from anisotropy.runs.selection import build_name, split_models
    from anisotropy.runs.site import build_site

    project = find_project()
    build = project.build / build_name(set_name, split_models(models, project.root))
    beside = {"scorecard.json": scorecard_json(read_scorecard(project, build.name))}
    click.echo(f"book: {build_site(project.root, build / 'executed', build, beside)}")


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@_SET
@_MODELS
@_one_line_errors
def publish(folder: Path, set_name: str, models: tuple[str, ...]) -> None:
    """Write the built book into DIR, as plain files for any web server, and into DIR.zip.

    DIR is new, empty, or of an earlier call; then it is replaced as a whole.
    """
    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.project import find_project
    from anisotropy.runs.publish import publish as write
    from anisotropy.runs.selection import build_name, split_models

    project = find_project()
    load_experiments(project.root).get_set(set_name)
    on = split_models(models, project.root)
    site = project.build / build_name(set_name, on) / "html"
    if not site.exists():
        options = "".join([f" --set {set_name}" if set_name != "laptop" else "", *(f" --models {one}" for one in on)])
        raise UserError(f"this book has not been built yet ({site} does not exist): `anisotropy book{options}`")
    done = write(site, folder)
    click.echo(f"{done.folder}: {done.files} files, {done.folder_size / 1e6:.1f} MB")
    click.echo(f"{done.archive}: {done.archive_size / 1e6:.1f} MB")


def _workflow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            _SET,
            _MODELS,
            click.option(
                "--profile",
                default="local",
                show_default=True,
                help="Where jobs run: local, slurm, or a folder with a Snakemake config.yaml of your own.",
            ),
            click.option("--partition", help="SLURM: partition of the jobs."),
            click.option("--account", help="SLURM: account of the jobs; default: none is named."),
            click.option("--cpus", type=click.IntRange(1), help="SLURM: cores of a job."),
            click.option("--gpus", type=click.IntRange(0), help="SLURM: GPUs of a measuring job."),
            click.option("--memory", type=click.IntRange(1), help="SLURM: memory of a job, in GB."),
            click.option("--hours", type=click.FloatRange(0, min_open=True), help="SLURM: time limit of a job."),
            click.option("-n", "--dry-run", is_flag=True, help="Say what would be done."),
            click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- SNAKEMAKE-OPTION…]"),
        ]
    ):
        command = option(command)
    return command


@main.command()
@_workflow_options
@click.option("--where", is_flag=True, help="Only print the folder of the book's pages.")
@_one_line_errors
def book(where: bool, set_name: str, models: tuple[str, ...], **how: Any) -> None:
    """Do everything a set needs: pretrain, measure, execute notebooks, render. A killed run goes on.

    \b
    anisotropy book --set smoke                        a small book, in minutes
    anisotropy book --models path/to/run               the book on your own checkpoints
    anisotropy book --set paper --profile slurm        each checkpoint a job of its own

    A folder of checkpoints holds folders named step-N or checkpoint-N, as `save_pretrained` and transformers' Trainer
    write them.
    """
    if where:
        from anisotropy.runs.project import find_project
        from anisotropy.runs.selection import build_name, split_models

        project = find_project()
        click.echo(project.build / build_name(set_name, split_models(models, project.root)) / "html")
    else:
        _drive("book", set_name, models, **how)


@main.command()
@_workflow_options
@_one_line_errors
def sweep(set_name: str, models: tuple[str, ...], **how: Any) -> None:
    """Measure everything that a set's notebooks read, models × checkpoints × studies. A killed sweep goes on.

    \b
    anisotropy sweep --set paper --profile slurm --partition gpu --gpus 1 --memory 32 --hours 4

    Results are kept by content in results/: what is there is not measured again. `anisotropy results export` writes
    them into one file, from which a laptop makes the book.
    """
    _drive("measurements", set_name, models, **how)


def _drive(
    target: Any,
    set_name: str,
    models: tuple[str, ...],
    *,
    profile: str,
    options: tuple[str, ...],
    dry_run: bool,
    **resources: Any,
) -> None:
    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.project import find_project
    from anisotropy.runs.selection import split_models
    from anisotropy.runs.workflow import drive

    project = find_project()
    load_experiments(project.root).get_set(set_name)
    on = split_models(models, project.root)
    drive(project, set_name, on, profile=profile, target=target, resources=resources, options=options, dry_run=dry_run)


@main.command()
@_SET
@click.option("--readings", is_flag=True, help="One line per reading instead of counts.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write everything, provenance too, to this file.")
@_one_line_errors
def scorecard(set_name: str, readings: bool, file: Path | None) -> None:
    """Print the verdicts of a set's executed notebooks, claims × models, and their spread over training seeds."""
    from anisotropy.report.seeds import read_spread
    from anisotropy.runs.project import find_project
    from anisotropy.runs.scorecard import read_scorecard, scorecard_text, write_scorecard

    found = read_scorecard(find_project(), set_name)
    click.echo(scorecard_text(found, read_spread(), each_reading=readings))
    if file:
        write_scorecard(found, file)
        click.echo(f"scorecard: {file}")


@main.command()
@_SET
@_MODELS
@click.option("--offline", is_flag=True, help="Do not ask the hub for sizes; go by the catalogue.")
@click.option("--bandwidth", type=click.FloatRange(0, min_open=True), default=20.0, show_default=True, help="MB/s.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON, sizes in bytes and times in seconds.")
@_one_line_errors
def plan(set_name: str, models: tuple[str, ...], offline: bool, bandwidth: float, as_json: bool) -> None:
    """Say what a set will cost before anything runs: download, disk, memory and time of each job.

    A job is a study on the checkpoints of one model; its disk and time are those of all its checkpoints that are not
    measured yet. Nothing is loaded and nothing but small files is downloaded.

    \b
    anisotropy plan --set paper
    anisotropy plan -m pythia-160m
    anisotropy plan --set smoke -m path/to/run --json
    """
    import json

    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.machine import this_machine
    from anisotropy.runs.plan import make_plan
    from anisotropy.runs.plan_table import as_text
    from anisotropy.runs.project import find_project
    from anisotropy.runs.selection import split_models

    project = find_project()
    experiments = load_experiments(project.root)
    experiments.get_set(set_name)
    labels = split_models(models, project.root)
    found = make_plan(project, experiments, set_name, labels, this_machine(project.results), ask_hub=not offline)
    click.echo(json.dumps(found.as_data(), indent=1) if as_json else as_text(found, bandwidth * 1e6))


@main.command()
@click.option("--set", "set_name", default="seeds", show_default=True, help="Set of experiments.yml.")
@click.option("--write-only", is_flag=True, help="Only write the file, from notebooks that have been executed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: the file that is committed.")
@_one_line_errors
def seeds(set_name: str, write_only: bool, output: Path | None) -> None:
    """Train, measure and judge models at several training seeds, and write how verdicts spread over them.

    A killed run goes on. What is trained and measured already is used.
    """
    from anisotropy.report.seeds import default_file
    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.project import find_project

    project = find_project()
    load_experiments(project.root).get_set(set_name)
    target = (output or default_file()).absolute()
    if write_only:
        from anisotropy.runs.seeds import make_spread, write_spread

        spread = make_spread(project, set_name)
        write_spread(spread, target)
        click.echo(f"{target}: {len(spread.verdicts)} verdicts over the training seeds {spread.seeds}")
    else:
        from anisotropy.runs.workflow import drive

        drive(project, set_name, target="spread", config={"spread": str(target)})


@main.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: the file that is committed.")
@_one_line_errors
def choices(output: Path | None) -> None:
    """Execute chapters again with one of our choices changed at a time, and write what the verdicts become.

    Which choices, on which models, stands under `choices` in experiments.yml. A killed run goes on; what is executed
    already is used. The models must be ready: `anisotropy book` first.
    """
    from anisotropy.report.choices import choices_file
    from anisotropy.runs.choices import make_choices, write_choices
    from anisotropy.runs.project import find_project

    target = (output or choices_file()).absolute()
    found = make_choices(find_project(), click.echo)
    write_choices(found, target)
    click.echo(f"{target}: {len(found.changed)} alternatives")


@main.group()
def results() -> None:
    """List, export and import what has been measured."""


@results.command(name="list")
@_one_line_errors
def list_results() -> None:
    """One line per collection: study, model, step, device, date; then how many this version of the code reads."""
    from anisotropy.runs.sharing import is_usable

    records = list(_store().records())
    for record in records:
        about = record["provenance"]
        click.echo(
            f"{record['key']['study']:<12} {record['model']:<24} step {record['step']:<8} {about['device']:<6} "
            f"{about['date']}  {about['seconds']:.1f} s"
        )
    usable = sum(is_usable(record["key"]) for record in records)
    click.echo(f"{len(records)} collections, {usable} of them measured with this version of the code")


@results.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "set_name", default=None, help="Only what the notebooks of this set of experiments.yml read.")
@click.option("-m", "--models", multiple=True, help="Only results of these models; may be repeated, or with commas.")
@_one_line_errors
def export(file: Path, set_name: str | None, models: tuple[str, ...]) -> None:
    """Write results, and what is recorded of their models, into one FILE.

    With it another machine makes the book without the models: `anisotropy results import FILE`, then
    `anisotropy book`.
    """
    from anisotropy.runs.experiments import load_experiments
    from anisotropy.runs.project import find_project
    from anisotropy.runs.selection import split_models
    from anisotropy.runs.sharing import export_results

    project = find_project()
    labels = split_models(models, project.root)
    requests = load_experiments(project.root).plain_requests(set_name, labels) if set_name else None
    done = export_results(project.results, file, models=labels, requests=requests)
    click.echo(f"{file}: {done.collections} collections of {', '.join(done.models)} ({done.size / 2**20:.1f} MB)")


@results.command(name="import")
@click.argument("file", type=click.Path(path_type=Path))
@_one_line_errors
def import_results(file: Path) -> None:
    """Take in the results of FILE; what is here already stays as it is."""
    from anisotropy.runs.project import find_project
    from anisotropy.runs.sharing import import_results as take_in

    done = take_in(find_project().results, file)
    total = done.new + done.known
    click.echo(f"{done.new} new collections, {done.known} were here already")
    if done.usable < total:
        click.echo(
            f"{total - done.usable} of {total} were measured with another version of the code: this version does not "
            "read them, and measures again what it needs"
        )
    if done.models:
        click.echo(f"recorded now: {', '.join(done.models)}")
    if done.other_runs:
        click.echo(
            f"{', '.join(done.other_runs)}: trained here too, with other weights; pages keep to the run of this machine"
        )


def _store() -> Any:
    from anisotropy.runs.project import find_project
    from anisotropy.studies.results import ResultStore

    return ResultStore(find_project().results)
