"""Which linear maps read a probe first: their weight gradient is what the theory speaks of.

A block normalises its input and hands it to the projections of its attention. Those projections (queries, keys and
values, in one matrix or in three) are the first linear maps that read the probe in front of the block; stacked, they
are one map from d to the sum of their widths.
"""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from anisotropy.models.probes import Places, blocks_of

_ATTENTION_READERS = (
    ("attention.query_key_value",),
    ("attn.Wqkv",),
    ("attn.c_attn",),
    ("self_attn.qkv_proj",),
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("attention.self.query", "attention.self.key", "attention.self.value"),
)


def find_readers(model: PreTrainedModel, places: Places) -> dict[str, list[nn.Module]]:
    """For each probe that this family has, the modules that read it first; empty for a family not known here."""
    blocks = blocks_of(model)
    found = {}
    for probe, entry in places.entries.items():
        names = dict(blocks[entry or 0].named_modules())
        for paths in _ATTENTION_READERS:
            if all(path in names for path in paths):
                found[probe] = [names[path] for path in paths]
                break
    return found
