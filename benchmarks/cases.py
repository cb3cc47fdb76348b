"""What is timed: ours beside what a researcher would pick instead, on the same data, each case in its own process.

A case prepares its data, then yields named callables; :mod:`benchmarks.run` times them. Data are seeded. Losses are
checked to be equal before times are compared.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

Timed = dict[str, Callable[[], object]]
SEED = 0


def rows(n: int, d: int, decay: float = 1.0) -> np.ndarray:
    """Gaussian rows whose variances fall as a power of the rank, like activations; float32."""
    random = np.random.default_rng(SEED)
    return (random.standard_normal((n, d)) * np.arange(1, d + 1) ** (-decay / 2)).astype(np.float32)


def mixtures(n: int, d: int, k: int) -> np.ndarray:
    """Non-negative sparse mixtures of k directions with noise of a third of the signal's size; float32."""
    random = np.random.default_rng(SEED)
    codes = random.exponential(size=(n, k)) * (random.random((n, k)) < 0.2)
    signal = codes @ random.standard_normal((k, d))
    return (signal + random.standard_normal((n, d)) * signal.std() / 3).astype(np.float32)


def overcomplete_semi_nmf() -> types.ModuleType:
    """overcomplete's optimiser without its package root, which does not import with this matplotlib."""
    spec = importlib.util.find_spec("overcomplete")
    if spec is None or spec.submodule_search_locations is None:
        raise SystemExit("pip install --no-deps overcomplete==0.3.0")
    parent = types.ModuleType("overcomplete")
    parent.__path__ = list(spec.submodule_search_locations)
    sys.modules["overcomplete"] = parent
    return importlib.import_module("overcomplete.optimization.semi_nmf")


def semi_nmf(n: int, d: int, solver: str, iterations: int) -> Timed:
    """Overcomplete's solver for some iterations, and ours until it is at most as lossy."""
    import warnings

    from anisotropy.concepts import SemiNMF

    warnings.simplefilter("ignore")
    k = 50
    data = mixtures(n, d, k)
    reference = overcomplete_semi_nmf()

    def theirs() -> float:
        torch.manual_seed(SEED)
        model = reference.SemiNMF(nb_concepts=k, solver=solver, verbose=False, max_iter=iterations, tol=0.0)
        codes, components = model.fit(torch.from_numpy(data))
        residual = data - codes.detach().numpy() @ components.detach().numpy()
        return float((residual.astype(np.float64) ** 2).sum())

    loss = theirs()
    curve = SemiNMF(k, tol=0.0, max_iter=200).fit(data).loss_curve_
    needed = next((i for i, value in enumerate(curve) if value <= loss), None)
    if needed is None:
        raise SystemExit(f"ours ends at {curve[-1]}, theirs at {loss}: not reached")
    return {
        f"overcomplete, {solver}, {iterations} iterations": theirs,
        f"SemiNMF, {needed} iterations to the same loss": lambda: SemiNMF(k, tol=0.0, max_iter=max(needed, 1)).fit(
            data
        ),
    }


def twonn() -> Timed:
    """The dimension of 10,000 × 768 rows, and the neighbour search alone by other means."""
    import skdim
    from sklearn.neighbors import NearestNeighbors

    from anisotropy.geometry import twonn as ours

    data = rows(10_000, 768)
    return {
        "scikit-dimension TwoNN": lambda: skdim.id.TwoNN().fit(data.astype(np.float64)),
        "scikit-learn brute neighbours alone": lambda: (
            NearestNeighbors(n_neighbors=3, algorithm="brute").fit(data).kneighbors(data)
        ),
        "blocked torch products alone": lambda: blocked_products(torch.from_numpy(data)),
        "twonn": lambda: ours(data),
    }


def blocked_products(data: torch.Tensor, block: int = 2000) -> torch.Tensor:
    """Squared distances to the three nearest by matrix products, without care for rounding."""
    norms = (data**2).sum(1)
    nearest = [
        (norms[i : i + block, None] + norms - 2 * data[i : i + block] @ data.T).topk(3, largest=False).values
        for i in range(0, len(data), block)
    ]
    return torch.cat(nearest)


def graph_dimension() -> Timed:
    """The graph estimate at n = 5,000: a 3-dimensional Gaussian in 50 dimensions."""
    from anisotropy.geometry import graph_dimension as ours

    random = np.random.default_rng(SEED)
    data = random.standard_normal((5000, 3)) @ random.standard_normal((3, 50))
    return {"graph_dimension, n = 5,000": lambda: ours(data)}


def isoscore_star() -> Timed:
    """IsoScore* of 100,000 × 768 rows, from the rows and from a covariance that was streamed."""
    from IsoScore.IsoScore import istar

    from anisotropy.geometry import isoscore_star as ours
    from anisotropy.geometry.moments import Moments

    data = torch.from_numpy(rows(100_000, 768))
    covariance = Moments.of(data).covariance
    target = torch.eye(768)

    def from_rows() -> object:
        return ours(Moments.of(data).covariance, zeta=0.2)

    return {
        "isoscore package, IsoScore_star(points)": lambda: istar().IsoScore_star(data, target, 0.2),
        "isoscore_star from rows": from_rows,
        "isoscore_star from a streamed covariance": lambda: ours(covariance, zeta=0.2),
    }


def moments() -> Timed:
    """Accumulating 100,000 × 768 rows in batches of 4,096, against the bare products in the same precision."""
    from anisotropy.geometry.moments import Moments

    data = torch.from_numpy(rows(100_000, 768))

    def accumulate() -> object:
        total = Moments(768)
        for batch in data.split(4096):
            total.update(batch)
        return total

    def bare() -> object:
        total = torch.zeros(768, 768, dtype=torch.float64)
        for batch in data.split(4096):
            wide = batch.double()
            total += wide.T @ wide
        return total

    return {"bare float64 products": bare, "Moments.update": accumulate}


def streaming(n: int) -> Timed:
    """Moments of n rows of 128, made batch by batch: memory must not depend on n."""
    from anisotropy.geometry.moments import Moments

    def accumulate() -> object:
        generator = torch.Generator().manual_seed(SEED)
        total = Moments(128)
        for _ in range(n // 1000):
            total.update(torch.randn(1000, 128, generator=generator))
        return total

    return {f"Moments of {n:,} rows": accumulate}


def probes() -> Timed:
    """Activations and gradients of mini-pythia at every probe, against its bare forward and backward pass."""
    from anisotropy.models.probes import capture, find_places

    model = _miniature().eval().requires_grad_(False)
    ids = torch.randint(0, 4096, (32, 128), generator=torch.Generator().manual_seed(SEED))
    places = find_places(model)
    names = places.distinct()

    def bare() -> object:
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_(True)
        loss = model(inputs_embeds=embedded, labels=ids).loss
        return torch.autograd.grad(loss, embedded)

    return {
        "bare forward + backward": bare,
        f"capture at {', '.join(names)}": lambda: capture(model, ids, ids, probes=names, places=places),
    }


def tangents() -> Timed:
    """What the tangent study collects from one checkpoint, against the passes through the model it cannot avoid."""
    from anisotropy.models.checkpoints import Checkpoint
    from anisotropy.models.corpus import StudyText
    from anisotropy.studies.tangents import Parameters, collect

    model = _miniature().eval().requires_grad_(False)
    ids = torch.randint(0, 4096, (64, 128), generator=torch.Generator().manual_seed(SEED))
    other = ids[torch.randperm(64, generator=torch.Generator().manual_seed(SEED))]
    text = StudyText(tuple(np.array_split(ids.numpy(), 16)), np.ones(4096, dtype=np.int64), "")
    checkpoint = Checkpoint(model, "mini-pythia", 0, "causal", None, "")

    def bare() -> None:
        with torch.no_grad():
            model(ids[:32])
        for labels in (ids, other):
            embedded = model.get_input_embeddings()(ids[32:]).detach().requires_grad_(True)
            torch.autograd.grad(model(inputs_embeds=embedded, labels=labels[32:]).loss, embedded)

    return {
        "bare passes: forward over half, forward + backward over half, twice": bare,
        "collect, all probes": lambda: collect(checkpoint, text, Parameters()),
    }


def _miniature() -> torch.nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    from anisotropy.models.catalogue import catalogue

    recipe = catalogue().miniatures["mini-pythia"].recipe
    torch.manual_seed(SEED)
    return AutoModelForCausalLM.from_config(
        AutoConfig.for_model(recipe.architecture, vocab_size=4096, max_position_embeddings=128, **recipe.config)
    )


def trainer(steps: int = 24) -> Timed:
    """Steps of mini-pythia in transformers' Trainer as `pretrain` sets it up, against a bare loop."""
    from torch.utils.data import TensorDataset
    from transformers import PrinterCallback, Trainer

    from anisotropy.models import miniature
    from anisotropy.models.catalogue import catalogue
    from anisotropy.models.checkpoints import quiet_transformers

    quiet_transformers()
    recipe = catalogue().miniatures["mini-pythia"].recipe.model_copy(update={"steps": steps})
    ids = np.random.default_rng(SEED).integers(0, 4096, size=(steps * recipe.batch_size, recipe.sequence_length))
    folder = Path(tempfile.mkdtemp())

    def with_trainer() -> object:
        model = _miniature()
        optimizer = miniature._optimizer(model, recipe)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: miniature._rate(step, recipe))
        loop = Trainer(
            model=model,
            args=miniature._arguments(recipe, folder, SEED),
            train_dataset=miniature._Batches(ids, ids),
            optimizers=(optimizer, schedule),
        )
        loop.remove_callback(PrinterCallback)
        return loop.train()

    def bare() -> object:
        model = _miniature().train()
        optimizer = miniature._optimizer(model, recipe)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: miniature._rate(step, recipe))
        batches = torch.utils.data.DataLoader(TensorDataset(torch.from_numpy(ids)), batch_size=recipe.batch_size)
        for (batch,) in batches:
            loss = model(input_ids=batch, labels=batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return loss

    return {f"bare loop, {steps} steps": bare, f"Trainer, {steps} steps": with_trainer}


CASES: dict[str, Callable[[], Timed]] = {
    "Semi-NMF 10,000 × 256, k = 50, against mu": lambda: semi_nmf(10_000, 256, "mu", 150),
    "Semi-NMF 10,000 × 256, k = 50, against pgd": lambda: semi_nmf(10_000, 256, "pgd", 150),
    "Semi-NMF 5,000 × 768, k = 50, against mu": lambda: semi_nmf(5_000, 768, "mu", 150),
    "Semi-NMF 5,000 × 768, k = 50, against pgd": lambda: semi_nmf(5_000, 768, "pgd", 150),
    "TwoNN 10,000 × 768": twonn,
    "Graph dimension": graph_dimension,
    "IsoScore* 100,000 × 768": isoscore_star,
    "Moments 100,000 × 768": moments,
    "Memory, 10⁴ rows": lambda: streaming(10_000),
    "Memory, 10⁵ rows": lambda: streaming(100_000),
    "Memory, 10⁶ rows": lambda: streaming(1_000_000),
    "Probes, mini-pythia, 32 × 128 tokens": probes,
    "Tangents, mini-pythia, 8,192 tokens": tangents,
    "Training, mini-pythia": trainer,
}
