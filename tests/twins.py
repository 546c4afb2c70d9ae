"""Literal NumPy twins of the cells: float64, one sequence and one step at a time, no torch.

Each is written from its paper's equations, not from the package. A twin takes the weights by gate,
`w[gate] = (W_x, W_h, b)` with b the sum of all of the gate's bias vectors, then x (S, B, I) and the state before the
first step, (B, H) each; it returns the outputs (S, B, H) and the state after the last. mask (S, B): where it is 0 the
step does not exist, nothing moves, and the output is the h of before.
"""

import numpy as np


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def affine(w, gate, x, h):
    W_x, W_h, b = w[gate]
    return W_x @ x + W_h @ h + b


def lstm(w, x, h, c, mask=None):
    """Hochreiter & Schmidhuber 1997 with Gers et al.'s forget gate: Chien et al. 2021, Eq. 1."""
    h, c, out = h.copy(), c.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                i = sigmoid(affine(w, "input", x[s, b], h[b]))
                f = sigmoid(affine(w, "forget", x[s, b], h[b]))
                o = sigmoid(affine(w, "output", x[s, b], h[b]))
                u = np.tanh(affine(w, "cell", x[s, b], h[b]))
                c[b] = f * c[b] + i * u
                h[b] = o * np.tanh(c[b])
            out[s, b] = h[b]
    return out, (h, c)


def ur_lstm(w, gate_bias, x, h, c, mask=None):
    """Gu et al. 2020, listing 2: the uniform vector is added to the forget gate and subtracted from the refine gate."""
    h, c, out = h.copy(), c.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                f = sigmoid(affine(w, "forget", x[s, b], h[b]) + gate_bias)
                r = sigmoid(affine(w, "refine", x[s, b], h[b]) - gate_bias)
                g = r * (1.0 - (1.0 - f) ** 2) + (1.0 - r) * f**2
                u = np.tanh(affine(w, "cell", x[s, b], h[b]))
                c[b] = g * c[b] + (1.0 - g) * u
                h[b] = sigmoid(affine(w, "output", x[s, b], h[b])) * np.tanh(c[b])
            out[s, b] = h[b]
    return out, (h, c)


def _write(w, x, h, c, f, coupled):
    i = 1.0 - f if coupled else sigmoid(affine(w, "input", x, h))
    c = f * c + i * np.tanh(affine(w, "cell", x, h))
    return sigmoid(affine(w, "output", x, h)) * np.tanh(c), c


def plstm_printed(w, p, epsilon, x, h, c, k, t, mask=None, form="paper", coupled=True):
    """Chien et al. 2021, Eqs. 4-8, unit steps: the reference time k_t (B, H) and the time t (B,) as they are printed.

    form="authors" is their code: it resets to t - epsilon and adds epsilon to the numerator of 1/ratio too.
    t counts the steps that exist; the state returned ends with the lag t - k.
    """
    h, c, k, t, out = h.copy(), c.copy(), k.copy(), t.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                t[b] += 1.0
                r = sigmoid(affine(w, "reset", x[s, b], h[b]))
                if form == "paper":
                    k[b] = r * t[b] + (1.0 - r) * k[b]
                    f = ((t[b] - k[b] + 1.0) / (t[b] - k[b] + epsilon)) ** (-p)
                else:
                    k[b] = r * (t[b] - epsilon) + (1.0 - r) * k[b]
                    f = ((t[b] - k[b] + epsilon) / (t[b] - k[b] + 1.0)) ** p
                h[b], c[b] = _write(w, x[s, b], h[b], c[b], f, coupled)
            out[s, b] = h[b]
    return out, (h, c, t[:, None] - k)


def plstm_printed_time(w, p, epsilon, x, h, c, k, t, dt, mask=None, coupled=True):
    """The variable-time form, appendix A.1, Eqs. 12-13, with absolute times t (B,) before the first step; f at most 1.

    The paper's sentence after Eq. 15 has k_t where Eq. 13 has k~_t; Eq. 13 is followed.
    """
    h, c, k, t, out = h.copy(), c.copy(), k.copy(), t.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                t[b] += dt[s, b]
                r = sigmoid(affine(w, "reset", x[s, b], h[b]))
                k_tilde = r * (t[b] - dt[s, b] + 1.0) + (1.0 - r) * k[b]
                k[b] = r * t[b] + (1.0 - r) * k[b]
                ratio = (t[b] - k[b] + 1.0) / (t[b] - dt[s, b] - k_tilde + 1.0 + epsilon)
                f = np.minimum(ratio ** (-p), 1.0)
                h[b], c[b] = _write(w, x[s, b], h[b], c[b], f, coupled)
            out[s, b] = h[b]
    return out, (h, c, t[:, None] - k)


def plstm_lag(w, p, epsilon, x, h, c, d, dt, mask=None, coupled=True):
    """The same without absolute time: the lag d = t - k alone, as a plain power."""
    h, c, d, out = h.copy(), c.copy(), d.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                r = sigmoid(affine(w, "reset", x[s, b], h[b]))
                above = (1.0 - r) * (d[b] + dt[s, b]) + 1.0
                below = (1.0 - r) * (d[b] + 1.0) + epsilon
                f = np.minimum((below / above) ** p, 1.0)
                d[b] = (1.0 - r) * (d[b] + dt[s, b])
                h[b], c[b] = _write(w, x[s, b], h[b], c[b], f, coupled)
            out[s, b] = h[b]
    return out, (h, c, d)
