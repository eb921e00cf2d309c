#!/usr/bin/env python3
"""The truth about logits: transformers in float32 on the dequantised weights of real models.

usage, in this order, for each model NAME of MODELS below (MODEL.gguf: tools/models.txt):
  make_logits.py ids    MODEL.gguf NAME          needs llama-cpp-python
  make_logits.py truth  MODEL.gguf NAME SCRATCH  needs torch, transformers, accelerate, gguf
  make_logits.py peer   MODEL.gguf NAME SCRATCH  needs llama-cpp-python, built for this machine

ids    text/*.txt -> ids-NAME.json, at most 768 tokens of each text. Ids, not text, are what both
       sides get: transformers' conversion of a GGUF tokenizer differs from llama.cpp's.
truth  -> ../fixtures/logits-NAME.bin: per position argmax, log-sum-exp, log-probability of the next
       token, the TOP most likely ids with their log-probabilities. SCRATCH keeps whole rows.
peer   -> the model's row of peer.txt: how far llama.cpp's own int8 activations are from the truth.
       SCRATCH must hold the rows of `truth`.

The file: "SHLOGIT1", u32 sequences, u32 TOP, u32 vocabulary; per sequence u32 n, i32 ids[n], then n
records {i32 argmax, f32 lse, f32 next, i32 top_id[TOP], f32 top_logprob[TOP]}; next is 0 in the
last one. KL is taken over the TOP ids and one bin for the rest, so it is a lower bound that is the
same for everybody; peer.txt also has the whole one.
"""
import json
import pathlib
import struct
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TOP = 64
TOKENS_MAX = 768
MODELS = ("smollm2", "gemma3", "qwen2")
RECORD = np.dtype([("argmax", "<i4"), ("lse", "<f4"), ("next", "<f4"), ("top_id", "<i4", (TOP,)),
                   ("top_logprob", "<f4", (TOP,))])


def fixture(name):
    return HERE.parent / "fixtures" / f"logits-{name}.bin"


def sequences(name):
    return json.loads((HERE / f"ids-{name}.json").read_text())


def make_ids(model, name):
    import llama_cpp
    vocab = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    out = {}
    for path in sorted((HERE / "text").glob("*.txt")):
        ids = vocab.tokenize(path.read_bytes(), add_bos=True, special=False)
        out[path.stem] = ids[:TOKENS_MAX]
    lines = [f'"{k}": {json.dumps(v, separators=(",", ":"))}' for k, v in out.items()]
    (HERE / f"ids-{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print({k: len(v) for k, v in out.items()})


def make_truth(model, name, scratch):
    import torch
    from transformers import AutoModelForCausalLM
    path = pathlib.Path(model).resolve()
    net = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name,
                                               dtype=torch.float32, attn_implementation="eager")
    net.eval()
    out, texts = b"", sequences(name)
    for text, ids in texts.items():
        with torch.no_grad():
            logits = net(torch.tensor([ids])).logits[0].float()
        lse = torch.logsumexp(logits.double(), -1)
        logprob = (logits.double() - lse[:, None]).float()
        top = torch.topk(logprob, TOP)
        record = np.zeros(len(ids), RECORD)
        record["argmax"] = logits.argmax(-1).numpy()
        record["lse"] = lse.float().numpy()
        record["next"][:-1] = logprob[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].numpy()
        record["top_id"], record["top_logprob"] = top.indices.numpy(), top.values.numpy()
        np.save(pathlib.Path(scratch) / f"{name}-{text}.npy", logprob.numpy())
        out += struct.pack("<I", len(ids)) + np.array(ids, "<i4").tobytes() + record.tobytes()
        print(name, text, len(ids), "perplexity", float(np.exp(-record["next"][:-1].mean())))
    head = b"SHLOGIT1" + struct.pack("<III", len(texts), TOP, logits.shape[-1])
    fixture(name).write_bytes(head + out)


def kl_top(record, logprob):
    """Per position: KL(truth || logprob) over the TOP ids of the truth and one bin for the rest."""
    p = record["top_logprob"].astype(np.float64)
    q = np.take_along_axis(logprob, record["top_id"], -1).astype(np.float64)
    rest_p = np.maximum(1 - np.exp(p).sum(-1), 1e-12)
    rest_q = np.maximum(1 - np.exp(q).sum(-1), 1e-12)
    return (np.exp(p) * (p - q)).sum(-1) + rest_p * np.log(rest_p / rest_q)


def make_peer(model, name, scratch):
    import llama_cpp
    texts = sequences(name)
    peer = llama_cpp.Llama(model, n_ctx=1024, n_batch=512, n_threads=2, logits_all=True,
                           verbose=False)
    kl, kl_all, same, nll, nll_truth = [], [], [], [], []
    data, at = fixture(name).read_bytes(), 20
    for text, ids in texts.items():
        at += 4 + 4 * len(ids)
        record = np.frombuffer(data, RECORD, len(ids), at)
        at += len(ids) * RECORD.itemsize
        peer.reset()
        peer.eval(ids)
        logprob = np.array(peer.scores[:len(ids)], np.float32)
        for i in range(0, len(ids), 64):  # float64, but not all of it at once
            x = logprob[i:i + 64].astype(np.float64)
            x -= x.max(-1, keepdims=True)
            logprob[i:i + 64] = x - np.log(np.exp(x).sum(-1, keepdims=True))
        truth = np.load(pathlib.Path(scratch) / f"{name}-{text}.npy", mmap_mode="r")
        kl.append(kl_top(record, logprob))
        for i in range(0, len(ids), 64):
            t = truth[i:i + 64].astype(np.float64)
            kl_all.append((np.exp(t) * (t - logprob[i:i + 64])).sum(-1))
        same.append(logprob.argmax(-1) == record["argmax"])
        nll.append(-logprob[np.arange(len(ids) - 1), ids[1:]])
        nll_truth.append(-record["next"][:-1])
    kl, kl_all, same, nll, nll_truth = map(np.concatenate, (kl, kl_all, same, nll, nll_truth))
    row = (f"{name} {kl.size} {kl.mean():.6e} {kl_all.mean():.6e} {same.mean():.5f} "
           f"{np.exp(nll.mean()):.5f} {np.exp(nll_truth.mean()):.5f}")
    path = HERE / "peer.txt"
    head = (f"# llama.cpp as in llama-cpp-python {llama_cpp.__version__}, built for the machine, "
            "F16 KV:\n# model, positions, mean KL over the top ids, mean KL, top-1, perplexity, "
            "truth's\n")
    rows = [r for r in path.read_text().split("\n") if r and r[0] != "#" and
            not r.startswith(name + " ")] if path.exists() else []
    path.write_text(head + "\n".join(sorted(rows + [row])) + "\n")
    print(row)


def main():
    what, model, name = sys.argv[1:4]
    assert name in MODELS
    {"ids": lambda: make_ids(model, name), "truth": lambda: make_truth(model, name, sys.argv[4]),
     "peer": lambda: make_peer(model, name, sys.argv[4])}[what]()


main()
