#!/usr/bin/env python3
"""One measurement of llama.cpp: peer_llama.py MODEL [-p 512] [-n 128] [-batch 1,8] [-depth 0]
[-reps 1] -> a JSON line.

Runs in a virtual environment that holds llama-cpp-python built for this machine (peer.py makes
it). Prompt and generation are measured as `shoal bench` does: warm, no sampling, no tokenising,
one process per measurement; at a depth over keys and values that were put there, not computed.
"""
import argparse
import ctypes
import json
import os
import struct
import time

import llama_cpp as ll

CHUNK = 256  # tokens whose keys and values are repeated down to the depth


def say_nothing(level, text, user_data):
    del level, text, user_data


def open_model(path, threads, tokens_max, streams):
    """The log's callback has to live as long as the model does."""
    log = ll.llama_log_callback(say_nothing)
    ll.llama_log_set(log, ctypes.c_void_p(0))
    ll.llama_backend_init()
    mp = ll.llama_model_default_params()
    mp.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(path.encode(), mp)
    cp = ll.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch = tokens_max, 2048, 512
    cp.n_seq_max = streams
    cp.n_threads = cp.n_threads_batch = threads
    ctx = ll.llama_init_from_model(model, cp)
    if not model or not ctx:
        raise SystemExit(f"peer_llama: cannot load {path}")
    return log, model, ctx


def decode(ctx, ids):
    """Behind what the one sequence holds."""
    array = (ll.llama_token * len(ids))(*ids)
    if ll.llama_decode(ctx, ll.llama_batch_get_one(array, len(ids))) != 0:
        raise SystemExit("peer_llama: llama_decode failed")


def generate(ctx, streams, steps, first, prompt):
    """One token of each of so many sequences a step, its logits computed."""
    batch = ll.llama_batch_init(streams, 0, 1)
    batch.n_tokens = streams
    for step in range(steps):
        for i in range(streams):
            batch.token[i], batch.pos[i] = prompt[(step + i) % len(prompt)], first + step
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1
        if ll.llama_decode(ctx, batch) != 0:
            raise SystemExit(f"peer_llama: llama_decode failed, {streams} sequences")
    ll.llama_batch_free(batch)


# ---------------------------------------------------------------- depth


class Reader:
    """The state of one sequence, as llama_kv_cache::state_write lays it out (v0.5.0)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def bytes(self, size):
        self.at += size
        return self.data[self.at - size:self.at]


def deepen(state, depth):
    """The state of CHUNK cells as one of depth cells, their rows over and over."""
    r = Reader(state)
    magic, seq, streams, cells = r.take("<IiII")
    positions = [r.take("<iIi") for _ in range(cells)]
    transposed, layers = r.take("<II")
    if (streams, cells, transposed) != (1, CHUNK, 0) or positions[-1] != (CHUNK - 1, 1, seq):
        raise SystemExit("peer_llama: -depth: this model has no plain cache of one sequence")
    out = [struct.pack("<IiII", magic, seq, 1, depth)]
    out += [struct.pack("<iIi", pos, 1, seq) for pos in range(depth)]
    out.append(struct.pack("<II", 0, layers))
    for _ in range(2 * layers):  # keys of all layers, then values
        kind, size = r.take("<iQ")
        rows = r.bytes(CHUNK * size)
        out.append(struct.pack("<iQ", kind, size) + (rows * (depth // CHUNK + 1))[:depth * size])
    if r.at != len(state):
        raise SystemExit(f"peer_llama: -depth: {len(state) - r.at} bytes of the state not known")
    return b"".join(out)


def fill(ctx, depth, prompt):
    memory = ll.llama_get_memory(ctx)
    ll.llama_memory_clear(memory, True)
    if depth == 0:
        return
    decode(ctx, [prompt[i % len(prompt)] for i in range(CHUNK)])
    size = ll.llama_state_seq_get_size(ctx, 0)
    buffer = (ctypes.c_uint8 * size)()
    ll.llama_state_seq_get_data(ctx, buffer, size, 0)
    state = deepen(bytes(buffer), depth)
    ll.llama_memory_clear(memory, True)
    whole = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    ll.llama_state_seq_set_data(ctx, whole, len(state), 0)
    if ll.llama_memory_seq_pos_max(memory, 0) != depth - 1:
        raise SystemExit(f"peer_llama: -depth: the cache did not take {depth} tokens")


# ---------------------------------------------------------------- tests


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(ctx, options, prompt):
    """A row for each test, as in the JSON of `shoal bench`."""
    memory, rows = ll.llama_get_memory(ctx), []

    def row(test, tokens, depth, batch, run):
        least = float("inf")
        for _ in range(options.reps):
            ll.llama_memory_seq_rm(memory, -1, depth, -1)
            least = min(least, seconds(run))
        rows.append({"test": test, "tokens": tokens, "depth": depth, "batch": batch,
                     "tokens_per_s": batch * tokens / least})
    for depth in options.depth:
        fill(ctx, depth, prompt)
        if options.p:
            row("pp", options.p, depth, 1, lambda: decode(ctx, prompt[:options.p]))
        for b in options.batch if options.n else []:
            row("tg", options.n, depth, b, lambda: generate(ctx, b, options.n, depth, prompt))
    return rows


def numbers(text):
    return [int(item) for item in text.split(",")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-reps", type=int, default=1)
    parser.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-batch", type=numbers, default=[1])
    parser.add_argument("-depth", type=numbers, default=[0])
    options = parser.parse_args()
    if max(options.depth) and max(options.batch) > 1:
        parser.error("-depth: only with -batch 1")
    room = max(options.depth) + options.p + options.n + CHUNK
    start = time.perf_counter()
    _log, model, ctx = open_model(options.model, options.threads, max(options.batch) * room,
                                  max(options.batch))
    load_s = time.perf_counter() - start
    vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    prompt = [(i * 7919 + 13) % (vocab - 300) + 200 for i in range(max(options.p, 512))]
    decode(ctx, prompt[:32])  # warm: pages of the weights, threads
    if options.n:
        ll.llama_memory_clear(ll.llama_get_memory(ctx), True)
        generate(ctx, max(options.batch), 2, 0, prompt)
    print(json.dumps({"name": f"llama.cpp (llama-cpp-python {ll.__version__})",
                      "system": ll.llama_print_system_info().decode().strip(),
                      "load_s": load_s, "tests": measure(ctx, options, prompt)}))


if __name__ == "__main__":
    main()
