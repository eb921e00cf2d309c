#!/usr/bin/env python3
"""One measurement of llama.cpp: peer_llama.py MODEL [-p 512] [-n 128] [-batch 1,8] -> JSON line.

Runs in a virtual environment that holds llama-cpp-python built for this machine (peer.py makes
it). Prompt and generation are measured as `shoal bench` does: warm, no sampling, no tokenising,
one process per measurement.
"""
import argparse
import ctypes
import json
import os
import time

import llama_cpp as ll


def say_nothing(level, text, user_data):
    del level, text, user_data


def open_model(path, threads, tokens_max, streams):
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
    array = (ll.llama_token * len(ids))(*ids)
    if ll.llama_decode(ctx, ll.llama_batch_get_one(array, len(ids))) != 0:
        raise SystemExit("peer_llama: llama_decode failed")


def generate(ctx, streams, steps, prompt):
    """One token of each of so many sequences a step, its logits computed."""
    batch = ll.llama_batch_init(streams, 0, 1)
    batch.n_tokens = streams
    for step in range(steps):
        for i in range(streams):
            batch.token[i], batch.pos[i] = prompt[(step + i) % len(prompt)], step
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1
        if ll.llama_decode(ctx, batch) != 0:
            raise SystemExit(f"peer_llama: llama_decode failed, {streams} sequences")
    ll.llama_batch_free(batch)


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-reps", type=int, default=3)
    parser.add_argument("-threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-batch", default="1")
    options = parser.parse_args()
    batches = [int(b) for b in options.batch.split(",")]
    room = options.p + options.n + 64
    _, model, ctx = open_model(options.model, options.threads, max(batches) * room, max(batches))
    vocab = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    prompt = [(i * 7919 + 13) % (vocab - 300) + 200 for i in range(options.p)]
    memory = ll.llama_get_memory(ctx)
    prefill, generated = [], {b: [] for b in batches}
    decode(ctx, prompt[:32])  # warm: pages of the weights, threads
    for _ in range(options.reps):
        ll.llama_memory_clear(memory, True)
        prefill.append(options.p / seconds(lambda: decode(ctx, prompt)))
        for b in batches:
            ll.llama_memory_clear(memory, True)
            generated[b].append(b * options.n /
                                seconds(lambda: generate(ctx, b, options.n, prompt)))
    print(json.dumps({"name": f"llama.cpp (llama-cpp-python {ll.__version__})",
                      "system": ll.llama_print_system_info().decode().strip(),
                      "pp": prefill, "tg": generated}))


if __name__ == "__main__":
    main()
