#!/usr/bin/env python3
"""Prints the polynomial coefficients of src/cpu/vmath.h and the error each fit leaves.

Method: weighted least squares on Chebyshev nodes, reweighted by the error (Lawson) until it is
level; functions and fits in double, coefficients rounded to float at the end. Needs numpy only.
"""
import math
import numpy as np


def fit(name, f, lo, hi, degree, weight=lambda x: 1 + 0 * x, rounds=60):
    n = 4000
    x = (lo + hi) / 2 + (hi - lo) / 2 * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    y = np.array([f(v) for v in x])
    w = np.ones(n)
    best = None
    for _ in range(rounds):
        a = np.vander(x, degree + 1, increasing=True) * (w * weight(x))[:, None]
        c, *_ = np.linalg.lstsq(a, y * w * weight(x), rcond=None)
        e = np.abs((np.polyval(c[::-1], x) - y) * weight(x))
        if best is None or e.max() < best[0]:
            best = (e.max(), c)
        w = w * np.sqrt(e / e.mean() + 1e-9)
        w /= w.mean()
    c32 = np.float32(best[1])
    print(f"{name}: [{lo:g}, {hi:g}] degree {degree}, error {best[0]:.2e}")
    print("   ", ", ".join(f"{float(v):.9g}f" for v in c32))


def series(f0, f, x, eps=1e-3):
    return f0 if abs(x) < eps else f(x)


def erfc(x):
    return math.erfc(x)


half = math.log(2) / 2
# exp(r) = 1 + r + r^2 q(r)
fit("exp q", lambda r: series(0.5 + r / 6 + r * r / 24, lambda v: (math.expm1(v) - v) / (v * v), r),
    -half, half, 4, lambda r: r * r)
# tanh(x) = x + x^3 q(x^2)
fit("tanh q", lambda u: series(-1 / 3 + 2 * u / 15 - 17 * u * u / 315,
                               lambda v: (math.tanh(math.sqrt(v)) / math.sqrt(v) - 1) / v, u, 1e-4),
    0.0, 0.625 ** 2, 4, lambda u: u)
# log(1 + f) = f - f^2 / 2 + f^3 q(f)
fit("log q", lambda v: series(1 / 3 - v / 4 + v * v / 5,
                              lambda t: (math.log1p(t) - t + t * t / 2) / t ** 3, v),
    math.sqrt(0.5) - 1, math.sqrt(2) - 1, 7, lambda v: v * v)
# erf(x) = x + x q(x^2)
fit("erf small q", lambda u: math.erf(math.sqrt(u)) / math.sqrt(u) - 1, 1e-12, 1.0, 6)
# erfc(a) = exp(-a^2 + q(a))
fit("erf large q", lambda a: math.log(erfc(a)) + a * a, 1.0, 4.0, 8)
