#!/usr/bin/env python3
"""PyTorch on the 8B shape in bf16 with random weights: the peer beside frontier on a GPU.

usage: peer_torch.py [PROMPT [CONTEXT]]
Needs torch with CUDA. Prompts of PROMPT tokens (4096), eager, best of five; decoding one sequence
at CONTEXT positions (512), a whole step as one CUDA graph, median of fifty. RoPE is left out, which
favours PyTorch.
"""
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, D, HEADS, KV, HD, FF, VOCAB = 32, 4096, 32, 8, 128, 14336, 128256


def weight(rows, cols):
    return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * 0.02


def main():
    prompt = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    context = int(sys.argv[2]) if len(sys.argv) > 2 else 512
    q_rows, kv_rows = HEADS * HD, KV * HD
    layers = [(weight(q_rows + 2 * kv_rows, D), weight(D, q_rows), weight(2 * FF, D), weight(D, FF))
              for _ in range(LAYERS)]
    head, norm = weight(VOCAB, D), torch.ones(D, device="cuda", dtype=torch.bfloat16)
    cache = [torch.randn(2, 1, KV, context, HD, device="cuda", dtype=torch.bfloat16)
             for _ in range(LAYERS)]

    def step(x, cached):
        n = x.shape[0]
        for i, (qkv, o, gate_up, down) in enumerate(layers):
            y = F.linear(F.rms_norm(x, (D,), norm), qkv)
            q, k, v = y.split([q_rows, kv_rows, kv_rows], 1)
            q, k, v = (t.view(1, n, -1, HD).transpose(1, 2) for t in (q, k, v))
            if cached:
                k, v = (torch.cat((c, t), 2) for c, t in zip(cache[i], (k, v)))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=not cached, enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(n, q_rows), o)
            g, u = F.linear(F.rms_norm(x, (D,), norm), gate_up).chunk(2, 1)
            x = x + F.linear(F.silu(g) * u, down)
        return F.linear(F.rms_norm(x[-1:], (D,), norm), head).argmax()

    def seconds(run):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    with torch.no_grad():
        x = torch.randn(prompt, D, device="cuda", dtype=torch.bfloat16)
        best = min(seconds(lambda: step(x, False)) for _ in range(5))
        print(f"torch {torch.__version__} prefill 8b BF16 {prompt} tokens: "
              f"{prompt / best:.1f} tokens/s")
        one = x[:1].clone()
        for _ in range(3):
            step(one, True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(one, True)
        times = sorted(seconds(graph.replay) for _ in range(50))
        print(f"torch decode 8b BF16 batch 1 context {context}: {1 / times[25]:.1f} tokens/s")


if __name__ == "__main__":
    main()
