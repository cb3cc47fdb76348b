"""Do a GPU and the CPU measure the same? Run on a machine with a GPU: `python tests/gpu/check.py` (under 5 minutes).

Every study measures small random models of three families on both, and the arrays are compared within the tolerances
below. Then memory is made scarce for real, so that batches have to be halved, and checked to be free again after each
checkpoint. With ``--device cpu`` the CPU is held against itself with other batch sizes: a check of this script.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from anisotropy.models import batch_size, probes
from anisotropy.models.checkpoints import Checkpoint, weight_hash
from anisotropy.runs.growth import random_text

VOCABULARY, LENGTH_OF_TEXT, MASK = 1_024, 20 * 128 * 6, 1
FAMILIES = {"gpt_neox": "causal", "llama": "causal", "eurobert": "masked"}
STUDIES = {
    "layers": {},
    "frequency": {"text_tokens": LENGTH_OF_TEXT},
    "tangents": {"tokens": 7_680},
    "updates": {},
    "concept_tables": {"concepts": 12, "rows": 2_048, "text_tokens": 5_120, "ica_rows": 512, "card_rows": 512},
    "alignment": {"components": 16, "text_tokens": 5_120, "tokens": 2_048},
}
# Largest difference over the array's largest value. Passes and moments differ by rounding alone. Factorisations follow
# a path that rounding can turn, so of them only what they achieve is compared.
ROUNDING = 2e-3
ACHIEVED = {"loss": 0.05, "raw": 0.02, "c_w": 0.1, "pca_matched": 0.02, "rank_without_block": 0.01}
LEFT_ON_DEVICE = 2**20  # bytes that may stay allocated after a checkpoint: constants of libraries


def small_model(family: str, vocabulary: int = VOCABULARY) -> PreTrainedModel:
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 192}
    # A padding token has a zero row, which a frequent token must not have.
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": vocabulary - 1, "mask_token_id": MASK}
    tied = {"tie_word_embeddings": family == "llama"}
    config = AutoConfig.for_model(family, vocab_size=vocabulary, initializer_range=0.1, **sizes, **special, **tied)
    loader = AutoModelForCausalLM if FAMILIES[family] == "causal" else AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return loader.from_config(config).eval().requires_grad_(False)


def checkpoint_of(family: str, device: str, vocabulary: int = VOCABULARY) -> Checkpoint:
    model = small_model(family, vocabulary)
    digest = weight_hash(model)
    mask = MASK if FAMILIES[family] == "masked" else None
    return Checkpoint(model.to(device), family, 0, FAMILIES[family], mask, digest)


def collected(study: str, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    module = importlib.import_module(f"anisotropy.studies.{study}")
    text = random_text(LENGTH_OF_TEXT, VOCABULARY)
    return module.collect(checkpoint, text, module.Parameters(**STUDIES[study]))


def differences(study: str, on_cpu: dict[str, np.ndarray], on_device: dict[str, np.ndarray]) -> Iterator[tuple]:
    """Name, difference relative to the largest value, and tolerance, of every array that is compared."""
    assert on_cpu.keys() == on_device.keys(), on_cpu.keys() ^ on_device.keys()
    for name, expected in on_cpu.items():
        if study == "layers" and (name == "coordinate_share" or "without" in name.removeprefix("without_")):
            continue  # among coordinates that add nearly the same, rounding decides which is left out
        factorised = study in ("concept_tables", "alignment")
        tolerance = ROUNDING
        if factorised and name not in ("reservoir", "tracked", "rows", "dimensions"):
            tolerance = next((value for part, value in ACHIEVED.items() if name.endswith(part)), None)
        if tolerance is None or expected.dtype.kind not in "fiu":
            continue
        found = on_device[name]
        assert found.shape == expected.shape, (name, found.shape, expected.shape)
        scale = float(np.nanmax(np.abs(expected))) if expected.size else 0.0
        apart = float(np.nanmax(np.abs(found.astype(float) - expected))) if expected.size else 0.0
        yield name, apart / scale if scale else apart, tolerance


@contextlib.contextmanager
def other_batches(device: str) -> Iterator[None]:
    """On the CPU, pieces of five sequences at most; on a GPU as many as fit."""
    if device != "cpu":
        yield
    else:
        with mock.patch.object(probes, "fitting", return_value=5):
            yield


def allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def compare_studies(device: str) -> list[str]:
    failures = []
    for family in FAMILIES:
        for study in STUDIES:
            started, before = time.perf_counter(), allocated(device)
            expected = collected(study, checkpoint_of(family, "cpu"))
            with other_batches(device):
                found = collected(study, checkpoint_of(family, device))
            batch_size.release(torch.device(device))
            left = allocated(device) - before
            compared = list(differences(study, expected, found))
            bad = [f"{name} differs by {apart:.2g}, allowed {most}" for name, apart, most in compared if apart > most]
            if left > LEFT_ON_DEVICE:
                bad.append(f"{left / 2**20:.1f} MiB stay on the device")
            worst = max((apart for _, apart, most in compared if most == ROUNDING), default=0.0)
            print(
                f"{family:<10} {study:<15} {len(compared):>3} arrays, rounding at most {worst:.1e}, "
                f"{time.perf_counter() - started:5.1f} s  {'FAILED: ' + '; '.join(bad) if bad else 'ok'}",
                flush=True,
            )
            failures += [f"{family}, {study}: {one}" for one in bad]
    return failures


def halve_for_real(device: str) -> list[str]:
    """Let the GPU have too little memory for a whole batch, and ask for whole batches."""
    if device == "cpu":
        print("scarce memory: needs a GPU, left out")
        return []
    vocabulary, ids = 50_304, torch.randint(3, 50_000, (32, 128), generator=torch.Generator().manual_seed(0))
    whole = probes.capture(checkpoint_of("gpt_neox", "cpu", vocabulary).model, ids, ids, probes=["Tm"])
    checkpoint = checkpoint_of("gpt_neox", device, vocabulary)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 1.2e9) / total)
    try:
        with mock.patch.object(probes, "fitting", return_value=32):
            found = probes.capture(checkpoint.model, ids.to(device), ids.to(device), probes=["Tm"])
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    notes = batch_size.take_notes()
    apart = float((found.gradients["Tm"].cpu() - whole.gradients["Tm"]).abs().max() / whole.gradients["Tm"].abs().max())
    print(f"scarce memory: {'; '.join(notes) or 'nothing was halved'}; gradients differ by {apart:.1e}")
    problems = [] if notes else ["scarce memory: no batch was halved"]
    return problems + ([f"scarce memory: gradients differ by {apart:.2g}"] if apart > ROUNDING else [])


def measure_with_auto(device: str) -> list[str]:
    """Two checkpoints of a folder through the laboratory, device=auto: each is told, and none stays on the device."""
    from anisotropy.runs.measuring import Laboratory, study_parameters
    from anisotropy.runs.project import Project

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        corpus = root / "corpus"
        corpus.mkdir()
        random = np.random.default_rng(0)
        words = ["".join(random.choice(list("abdegiklmnorstu"), 5)) for _ in range(400)]
        for number in range(240):
            (corpus / f"{number:03d}.txt").write_text(" ".join(random.choice(words, 300)))
        from anisotropy.models.corpus import load_corpus, train_tokenizer

        tokenizer = train_tokenizer(load_corpus(str(corpus)).train, VOCABULARY)
        for step in (1, 2):
            model = small_model("gpt_neox")
            model.get_input_embeddings().weight.data.mul_(step)
            model.save_pretrained(root / "run" / f"step-{step}")
        tokenizer.save_pretrained(root / "run" / "tokenizer")
        before = allocated(device)
        laboratory = Laboratory(Project(root), corpus=str(corpus), device="auto" if device != "cpu" else "cpu")
        found = laboratory.measure(str(root / "run"), "updates", study_parameters("updates"))
        devices = {str(one.provenance["device"]).partition(":")[0] for one in found.collections}
        left = allocated(device) - before
    print(f"auto: {len(found.collections)} checkpoints on {', '.join(devices)}, {left / 2**20:.1f} MiB left on it")
    problems = [] if devices == {device} else [f"auto: measured on {devices}, not on {device}"]
    return problems + ([f"auto: {left / 2**20:.1f} MiB stay on the device"] if left > LEFT_ON_DEVICE else [])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    device = parser.parse_args(arguments).device
    if device == "cuda" and not torch.cuda.is_available():
        print("no GPU that torch can use is here; `--device cpu` checks this script itself", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU against itself"
    print(f"{name}, torch {torch.__version__}")
    started = time.perf_counter()
    failures = compare_studies(device) + halve_for_real(device) + measure_with_auto(device)
    print(f"{time.perf_counter() - started:.0f} s; {f'{len(failures)} failures' if failures else 'everything agrees'}")
    for failure in failures:
        print(f"  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
