#!/usr/bin/env python3
"""The truth about the tiny models' logits: transformers, float32, weights put in by name.

usage: make_tiny_golden.py FOLDER LIBQUANT [NAME...]     needs torch, transformers, gguf, numpy
FOLDER holds what tests/model/make_tiny.py wrote. Writes NAME.bin beside this script:
"SHTINYL1", sha256 of NAME.gguf, u32 positions n, u32 vocabulary v, i32 ids[n], f32 logits[n][v],
f32 logits[n][v] once more with K and V rounded to f16 as a cache keeps them.

Inputs are drawn until no choice hangs on a hair: two most likely tokens, or the last chosen expert
and the first not chosen, that lie closer than MARGIN would turn rounding into another answer.

The weights go from GGUF's layout back to Hugging Face's (docs/formats/gguf.md and docs/models/):
row order of Q and K in llama, 1 + w norms of gemma3, interleaved gate and up of gpt-oss.
transformers' own reader of GGUF files is not used.
"""
import hashlib
import pathlib
import struct
import sys

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "model"))
import make_tiny  # noqa: E402

POSITIONS = 80
MARGIN = 2e-3
BLOCK = {"attn_norm.weight": "input_layernorm.weight", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "attn_sinks.weight": "self_attn.sinks",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "ffn_norm.weight": "post_attention_layernorm.weight"}
GEMMA = {"post_attention_norm": "post_attention_layernorm",
         "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}


def unpermute(w, heads):
    """Row 2i of a head back to i, row 2i + 1 to i + d/2."""
    rows = w.shape[0] // heads
    return w.reshape(heads, rows // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def rope(f):
    theta = f["rope.freq_base"]
    if "llama3" in f:
        factor, low, high, original = f["llama3"]
        return {"rope_type": "llama3", "rope_theta": theta, "factor": factor,
                "low_freq_factor": low, "high_freq_factor": high,
                "original_max_position_embeddings": original}
    if f.get("rope.scaling.type") == "yarn":
        return {"rope_type": "yarn", "rope_theta": theta, "factor": f["rope.scaling.factor"],
                "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": f["rope.scaling.original_context_length"]}
    return {"rope_type": "default", "rope_theta": theta}


def build(f):
    n = f["block_count"]
    common = dict(
        vocab_size=make_tiny.VOCAB, hidden_size=f["embedding_length"], num_hidden_layers=n,
        intermediate_size=f["feed_forward_length"], num_attention_heads=f["attention.head_count"],
        num_key_value_heads=f["attention.head_count_kv"],
        rms_norm_eps=f["attention.layer_norm_rms_epsilon"], tie_word_embeddings=not f["output"],
        max_position_embeddings=make_tiny.CONTEXT, attn_implementation="eager",
        head_dim=f.get("attention.key_length", f["embedding_length"] // f["attention.head_count"]),
        rope_parameters=rope(f), bos_token_id=None, eos_token_id=None, pad_token_id=None)
    experts = dict(num_experts_per_tok=f.get("expert_used_count"))
    arch = f["arch"]
    if arch == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**common))
    if arch == "qwen2":
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common))
    if arch == "qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**common))
    if arch == "qwen3moe":
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
            **common, **experts, num_experts=f["expert_count"], norm_topk_prob=True,
            moe_intermediate_size=f["expert_feed_forward_length"], mlp_only_layers=[],
            decoder_sparse_step=1))
    if arch == "gemma3":
        common["rope_parameters"] = {
            "full_attention": {"rope_type": "linear", "rope_theta": f["rope.freq_base"],
                               "factor": f["rope.scaling.factor"]},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
        return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
            **common, query_pre_attn_scalar=f["attention.key_length"],
            sliding_window=f["attention.sliding_window"],
            layer_types=["sliding_attention" if i % 6 < 5 else "full_attention"
                         for i in range(n)]))
    assert arch == "gpt-oss"
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **common, **experts, num_local_experts=f["expert_count"], attention_bias=True,
        sliding_window=f["attention.sliding_window"],
        layer_types=["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(n)]))


def expert_states(p, t, arch):
    """Experts of one layer: stacks [E][out][in] in GGUF."""
    gate, up, down = (t.pop(p + f"ffn_{x}_exps.weight") for x in ("gate", "up", "down"))
    router = t.pop(p + "ffn_gate_inp.weight")
    if arch == "qwen3moe":
        return {"mlp.gate.weight": router, "mlp.experts.down_proj": down,
                "mlp.experts.gate_up_proj": np.concatenate([gate, up], 1)}
    bias = {x: t.pop(p + f"ffn_{x}_exps.bias") for x in ("gate", "up", "down")}
    both = np.stack([gate, up], 2).reshape(gate.shape[0], -1, gate.shape[2])
    return {"mlp.router.weight": router, "mlp.router.bias": t.pop(p + "ffn_gate_inp.bias"),
            "mlp.experts.gate_up_proj": both.swapaxes(1, 2),
            "mlp.experts.gate_up_proj_bias":
                np.stack([bias["gate"], bias["up"]], 2).reshape(gate.shape[0], -1),
            "mlp.experts.down_proj": down.swapaxes(1, 2),
            "mlp.experts.down_proj_bias": bias["down"]}


def block_name(rest, arch):
    stem, _, kind = rest.rpartition(".")
    if arch == "gemma3" and stem in GEMMA:
        return f"{GEMMA[stem]}.{kind}"
    if arch == "gpt-oss" and stem == "post_attention_norm":
        return f"post_attention_layernorm.{kind}"
    return BLOCK[rest] if rest in BLOCK else f"{BLOCK[stem]}.{kind}"


def states(t, f):
    arch, out, t = f["arch"], {}, dict(t)
    t.pop("rope_freqs.weight", None)  # transformers computes them from the configuration
    for i in range(f["block_count"]):
        if "expert_count" in f:
            for k, v in expert_states(f"blk.{i}.", t, arch).items():
                out[f"model.layers.{i}.{k}"] = v
    for name, w in t.items():
        if arch == "gemma3" and "norm" in name:
            w = w - 1
        if arch == "llama" and (".attn_q." in name or ".attn_k." in name):
            w = unpermute(w, f["attention.head_count" + ("" if "_q." in name else "_kv")])
        if name.startswith("blk."):
            _, i, rest = name.split(".", 2)
            out[f"model.layers.{i}.{block_name(rest, arch)}"] = w
        else:
            out[{"token_embd.weight": "model.embed_tokens.weight",
                 "output_norm.weight": "model.norm.weight",
                 "output.weight": "lm_head.weight"}[name]] = w
    return {k: torch.from_numpy(np.ascontiguousarray(v, np.float32)) for k, v in out.items()}


class RoundedCache(transformers.DynamicCache):
    def update(self, key, value, *args, **kwargs):
        return super().update(key.half().float(), value.half().float(), *args, **kwargs)


def watch_routers(model, f, gaps):
    """Collects how far apart the last chosen and the first other expert are."""
    def hook(module, inputs, _):
        x = inputs[0].reshape(-1, f["embedding_length"])
        logits = torch.nn.functional.linear(x, module.weight, getattr(module, "bias", None))
        top = torch.sort(logits, -1, descending=True).values
        used = f["expert_used_count"]
        gaps.append((top[:, used - 1] - top[:, used]).min().item())
    for name, module in model.named_modules():
        if name.endswith(("mlp.gate", "mlp.router")) and "expert_count" in f:
            module.register_forward_hook(hook)


def golden(name, f, packed):
    model = build(f).float().eval()
    missing, unexpected = model.load_state_dict(states(make_tiny.truth(packed), f), strict=False)
    missing = [m for m in missing if not (m == "lm_head.weight" and not f["output"])]
    assert not missing and not unexpected, (missing, unexpected)
    model.tie_weights()
    gaps = []
    watch_routers(model, f, gaps)
    for attempt in range(1000):
        ids = make_tiny.noise(f"{name}ids{attempt}", (POSITIONS,)) * 92 + 160
        ids = ids.astype(np.int32)
        assert ids.min() >= 0 and ids.max() < make_tiny.VOCAB
        tokens = torch.from_numpy(ids.astype(np.int64))[None]
        gaps.clear()
        with torch.no_grad():
            logits = model(tokens).logits[0]
            top = torch.topk(logits, 2).values
            if min([*gaps, (top[:, 0] - top[:, 1]).min().item()]) < MARGIN:
                continue
            cache = RoundedCache(config=model.config)
            rounded = model(tokens, past_key_values=cache, use_cache=True).logits[0]
        print(f"{name}: input {attempt}, range {logits.min():.2f} .. {logits.max():.2f}, "
              f"{len(set(logits.argmax(-1).tolist()))} winners; K and V as f16 change up to "
              f"{(rounded - logits).abs().max() / (logits.max() - logits.min()):.1e} of the range")
        return ids, logits.numpy().astype("<f4"), rounded.numpy().astype("<f4")
    sys.exit(f"{name}: every input hangs on a hair")


def main():
    folder, encoders = pathlib.Path(sys.argv[1]), make_tiny.Encoders(sys.argv[2])
    for file, name, f, is_mixed in make_tiny.variants():
        if sys.argv[3:] and file not in sys.argv[3:]:
            continue
        packed = make_tiny.pack(name, f, encoders if is_mixed else None)
        ids, logits, rounded = golden(file, f, packed)
        digest = hashlib.sha256((folder / f"{file}.gguf").read_bytes()).digest()
        (HERE / f"{file}.bin").write_bytes(
            b"SHTINYL1" + digest + struct.pack("<II", *logits.shape) + ids.astype("<i4").tobytes()
            + logits.tobytes() + rounded.tobytes())


main()
