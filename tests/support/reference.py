"""Reference implementations of the cells in NumPy: float64, one sequence and one step at a time, without torch.

Each is written from its paper, not from the package. A reference implementation takes the weights by gate,
`w[gate] = (W_x, W_h, b)` with b the sum of the gate's bias vectors, x (S, B, I), and the state before the first step,
each (B, H). It returns the outputs (S, B, H) and the state after the last step. Where mask (S, B) is 0, the step does
not exist: the state does not change, and the output is the h before it.
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


GATES_OF_GU = ("-", "c", "o", "u", "r", "om", "um", "or", "ur")


def cumax(z):
    e = np.exp(z - z.max())
    return np.array([e[: k + 1].sum() for k in range(len(e))]) / e.sum()


def effective_gates(gate, z, b, chunk=1, fine_input=True):
    """Gu et al. 2020, listings 1 and 2, Eqs. 16-20 and 25-34: forget and input gate, from pre-activations by name.

    b: the bias vector of c, u, um, ur, the number 1 of - and r. fine_input=False: a GRU, which has no input gate.
    """
    if gate in ("-", "c", "u"):
        f = sigmoid(z["forget"] + b)
        if not fine_input:
            return f, 1.0 - f
        return f, sigmoid(z["input"]) if gate == "-" else sigmoid(z["input"] - b)
    if gate == "o":
        f = cumax(z["forget"])
        return f, 1.0 - cumax(z["input"]) if fine_input else 1.0 - f
    if gate in ("r", "ur", "or"):
        f = cumax(z["forget"]) if gate == "or" else sigmoid(z["forget"] + b)
        r = sigmoid(z["refine"]) if gate == "or" else sigmoid(z["refine"] - b)
        g = r * (1.0 - (1.0 - f) ** 2) + (1.0 - r) * f**2
        return g, 1.0 - g
    if gate == "om":
        master_f, master_i = cumax(z["master_forget"]), 1.0 - cumax(z["master_input"])
    else:
        master_f, master_i = sigmoid(z["master_forget"] + b), sigmoid(z["master_input"] - b)
    n = len(z["forget"])
    master_f = np.array([master_f[k // chunk] for k in range(n)])
    master_i = np.array([master_i[k // chunk] for k in range(n)])
    f = sigmoid(z["forget"])
    i = sigmoid(z["input"]) if fine_input else 1.0 - f
    w = master_f * master_i
    return f * w + (master_f - w), i * w + (master_i - w)


def gated_lstm(w, gate, gate_bias, chunk, x, h, c, mask=None):
    """Gu et al. 2020, Eqs. 1 and 5: an LSTM with one of the nine gates; `w` is without the gate's own bias."""
    h, c, out = h.copy(), c.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                z = {name: affine(w, name, x[s, b], h[b]) for name in w}
                f, i = effective_gates(gate, z, gate_bias, chunk)
                c[b] = f * c[b] + i * np.tanh(z["cell"])
                h[b] = sigmoid(z["output"]) * np.tanh(c[b])
            out[s, b] = h[b]
    return out, (h, c)


def gated_gru(w, gate, gate_bias, chunk, x, h, mask=None, form="forget"):
    """A GRU with one of the nine gates in the place of its update gate; form="update": the gate weights the new."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                z = {name: affine(w, name, x[s, b], h[b]) for name in w}
                f, i = effective_gates(gate, z, gate_bias, chunk, fine_input=False)
                if form == "update":
                    f, i = i, f
                W_x, W_h, bias = w["cell"]
                u = np.tanh(W_x @ x[s, b] + bias + sigmoid(z["reset"]) * (W_h @ h[b]))
                h[b] = f * h[b] + i * u
            out[s, b] = h[b]
    return out, (h,)


def gru(w, x, h, mask=None):
    """torch.nn.GRU's documentation; w[gate] = (W_x, W_h, b_x, b_h), the update gate z is called forget."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                own = {name: W_x @ x[s, b] + b_x for name, (W_x, _, b_x, _) in w.items()}
                back = {name: W_h @ h[b] + b_h for name, (_, W_h, _, b_h) in w.items()}
                r = sigmoid(own["reset"] + back["reset"])
                z = sigmoid(own["forget"] + back["forget"])
                n = np.tanh(own["cell"] + r * back["cell"])
                h[b] = (1.0 - z) * n + z * h[b]
            out[s, b] = h[b]
    return out, (h,)


def janet(w, beta, x, h, mask=None):
    """van der Westhuizen & Lasenby 2018."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                pre = affine(w, "forget", x[s, b], h[b])
                u = np.tanh(affine(w, "cell", x[s, b], h[b]))
                h[b] = sigmoid(pre) * h[b] + (1.0 - sigmoid(pre - beta)) * u
            out[s, b] = h[b]
    return out, (h,)


def elstm(w, x, h, c, dt=None, mask=None, coupled=True):
    """A coupled (or separate) LSTM whose forget gate is the sigmoid to the power of dt."""
    h, c, out = h.copy(), c.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                f = sigmoid(affine(w, "forget", x[s, b], h[b])) ** (1.0 if dt is None else dt[s, b])
                h[b], c[b] = _write(w, x[s, b], h[b], c[b], f, coupled)
            out[s, b] = h[b]
    return out, (h, c)


def leaky(w, tau, x, h, dt=None, mask=None):
    """Leaky integrators: tau dh/dt = -h + u, solved for a u that is constant during a step."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                u = np.tanh(affine(w, "cell", x[s, b], h[b]))
                h[b] = u + (h[b] - u) * np.exp(-(1.0 if dt is None else dt[s, b]) / tau)
            out[s, b] = h[b]
    return out, (h,)


def exprnn(W_x, A, bias, x, h, mask=None):
    """Lezcano-Casado & Martinez-Rubio 2019: modrelu(W_x x + exp(A) h), the exponential by its power series."""
    W, term = np.eye(len(A)), np.eye(len(A))
    for n in range(1, 60):
        term = term @ A / n
        W = W + term
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                z = W_x @ x[s, b] + W @ h[b]
                h[b] = np.sign(z) * np.maximum(np.abs(z) + bias, 0.0)
            out[s, b] = h[b]
    return out, (h,)


def pgru(w, p, epsilon, x, h, k, t, dt=None, mask=None):
    """A GRU that keeps by Chien et al.'s gate (appendix A.1, Eqs. 12-13, absolute times): see `plstm_printed_time`."""
    h, k, t, out = h.copy(), k.copy(), t.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                step = 1.0 if dt is None else dt[s, b]
                t[b] += step
                r = sigmoid(affine(w, "reset", x[s, b], h[b]))
                k_tilde = r * (t[b] - step + 1.0) + (1.0 - r) * k[b]
                k[b] = r * t[b] + (1.0 - r) * k[b]
                f = np.minimum(((t[b] - k[b] + 1.0) / (t[b] - step - k_tilde + 1.0 + epsilon)) ** (-p), 1.0)
                W_x, W_h, bias = w["cell"]
                u = np.tanh(W_x @ x[s, b] + bias + sigmoid(affine(w, "read", x[s, b], h[b])) * (W_h @ h[b]))
                h[b] = f * h[b] + (1.0 - f) * u
            out[s, b] = h[b]
    return out, (h, t[:, None] - k)


def mingru(w, x, h, dt=None, mask=None):
    """Feng et al. 2024, minGRU: h = (1 - z) h + z u; 1 - z, here called forget, to the power of dt."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    (W_f, _, b_f), (W_u, _, b_u) = w["forget"], w["cell"]
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                z = sigmoid(-(W_f @ x[s, b] + b_f))
                kept = (1.0 - z) ** (1.0 if dt is None else dt[s, b])
                h[b] = kept * h[b] + (1.0 - kept) * (W_u @ x[s, b] + b_u)
            out[s, b] = h[b]
    return out, (h,)


def minlstm(w, x, h, dt=None, mask=None):
    """Feng et al. 2024, minLSTM: f and i divided by their sum; f to the power of dt, and i what is missing to 1."""
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                f, i, u = (w[gate][0] @ x[s, b] + w[gate][2] for gate in ("forget", "input", "cell"))
                f, i = sigmoid(f), sigmoid(i)
                f, i = f / (f + i), i / (f + i)
                if dt is not None:
                    f = f ** dt[s, b]
                    i = 1.0 - f
                h[b] = f * h[b] + i * u
            out[s, b] = h[b]
    return out, (h,)


def plscan(w, p, epsilon, x, h, c, d, dt=None, mask=None):
    """Chien et al. 2021 in the form of `plstm_lag`, with gates of the input alone."""
    without = {gate: (W_x, np.zeros((len(W_x), h.shape[1])), b) for gate, (W_x, _, b) in w.items()}
    return plstm_lag(without, p, epsilon, x, h, c, d, np.ones(x.shape[:2]) if dt is None else dt, mask)


def lru(w, nu_log, theta_log, gamma_log, x, real, imaginary, dt=None, mask=None):
    """Orvieto et al. 2023, in complex numbers: z = lambda z + gamma (B x + b), whose real part is the output."""
    z, out = real + 1j * imaginary, np.zeros((*x.shape[:2], real.shape[1]))
    (W_re, _, b_re), (W_im, _, b_im) = w["real"], w["imaginary"]
    log_lambda = -np.exp(nu_log) + 1j * np.exp(theta_log)
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                drive = (W_re + 1j * W_im) @ x[s, b] + (b_re + 1j * b_im)
                z[b] = np.exp(log_lambda * (1.0 if dt is None else dt[s, b])) * z[b] + np.exp(gamma_log) * drive
            out[s, b] = z[b].real
    return out, (z.real, z.imag)


def layer_norm(z, gain, offset):
    centred = z - z.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-5) * gain + offset


def attention_block(p, A, heads, key_size):
    """Santoro et al. 2018, section 3.2, as their code has it: attention of every row to every row, then the MLP."""
    S = A.shape[1]
    V = S // heads
    qkv = [layer_norm(p["qkv.weight"] @ a + p["qkv.bias"], p["qkv_norm.weight"], p["qkv_norm.bias"]) for a in A]
    attended = np.zeros_like(A)
    for h in range(heads):
        of_head = [z[h * (2 * key_size + V) : (h + 1) * (2 * key_size + V)] for z in qkv]
        for j, query in enumerate(of_head):
            scores = np.array([query[:key_size] @ row[key_size : 2 * key_size] for row in of_head])
            shares = np.exp(scores / np.sqrt(key_size))
            shares /= shares.sum()
            attended[j, h * V : (h + 1) * V] = sum(
                share * row[2 * key_size :] for share, row in zip(shares, of_head, strict=True)
            )
    A = np.stack([layer_norm(a + b, p["norm.weight"], p["norm.bias"]) for a, b in zip(A, attended, strict=True)])
    mlp = [p["mlp.2.weight"] @ np.maximum(p["mlp.0.weight"] @ a + p["mlp.0.bias"], 0.0) + p["mlp.2.bias"] for a in A]
    return np.stack([layer_norm(a + b, p["mlp_norm.weight"], p["mlp_norm.bias"]) for a, b in zip(A, mlp, strict=True)])


def rmc(p, w, gate, gate_bias, chunk, memories, heads, key_size, blocks, x, h, mask=None):
    """Santoro et al. 2018 with one of the nine gates. p: parameters by name; w[gate] = (W_g, W_m, b) of a memory.

    `blocks` has the parameters of each block; those of the MLP are in p.
    """
    h, out = h.copy(), np.zeros((*x.shape[:2], h.shape[1]))
    for s in range(x.shape[0]):
        for b in range(x.shape[1]):
            if mask is None or mask[s, b]:
                M = h[b].reshape(memories, -1)
                row = p["weight_ih"] @ x[s, b] + p["bias"]
                A = np.concatenate([M, row[None]])
                for block in blocks:
                    A = attention_block(p | block, A, heads, key_size)
                new = np.zeros_like(M)
                for n in range(memories):
                    z = {name: affine(w, name, row, np.tanh(M[n])) for name in w}
                    f, i = effective_gates(gate, z, gate_bias, chunk)
                    new[n] = f * M[n] + i * np.tanh(A[n])
                h[b] = new.flatten()
            out[s, b] = h[b]
    return out, (h,)
