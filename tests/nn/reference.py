"""One step of every cell in NumPy, written from its paper and not from the package.

    def name(own, x, s, dt, a): ...

`own` has the cell's parameters and buffers by name, x is (I,), `s` the state by name, dt the time since the step
before, `a` the cell's arguments, with the names of its gates as "gates" and their numbers of rows as "heights". A step
returns the new state by name. `unrolled` loops over steps and sequences; where a mask is 0, a step does not exist.
"""

import inspect

import numpy as np

from timescales.nn import cells


def unrolled(cell, arguments, x, state, dt, mask, initial=None):
    """Run the reference of a cell: the outputs (S, B, H), and the state after the last step by name.

    initial: the biases of frozen gates by name, whatever the parameters say of them.
    """
    own = {k: v.detach().numpy().copy() for k, v in [*cell.named_parameters(), *cell.named_buffers()]}
    for gate in getattr(cell, "frozen", ()):
        rows = cell.rows(gate)
        for key, value in (("bias_ih", 0.0), ("bias_hh", initial[gate]), ("bias", initial[gate])):
            if key in own:
                own[key][rows] = value
    defaults = {k: p.default for k, p in inspect.signature(type(cell)).parameters.items()}
    a = defaults | arguments | {"gates": cell.gates, "heights": [cell.height(gate) for gate in cell.gates]}
    a["training"] = cell.training
    state = {k: v.numpy().copy() for k, v in state._asdict().items()}
    outputs = np.empty((*x.shape[:2], cell.hidden_size))
    for t, b in np.ndindex(x.shape[:2]):
        if mask is None or mask[t, b]:
            before = {k: v[b].copy() for k, v in state.items()}
            after = STEPS[type(cell)](own, x[t, b].numpy(), before, 1.0 if dt is None else float(dt[t, b]), a)
            assert after.keys() == state.keys()
            for k, v in after.items():
                state[k][b] = v
        outputs[t, b] = state["h"][b]
    return outputs, state


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def by_gate(a, z):
    return dict(zip(a["gates"], np.split(z, np.cumsum(a["heights"])[:-1]), strict=True))


def shares(own, a, x, h=None):
    """W x + U h + b by gate, b the sum of the gate's bias vectors; without h, W x + b."""
    z = own["weight_ih"] @ x + sum(own[k] for k in ("bias", "bias_ih", "bias_hh") if k in own)
    return by_gate(a, z if h is None else z + own["weight_hh"] @ h)


def written(z, c):
    return {"h": sigmoid(z["output"]) * np.tanh(c), "c": c}


# --- LSTMs and GRUs ---------------------------------------------------------------------------------------------------
def lstm(own, x, s, dt, a):
    """Hochreiter & Schmidhuber 1997 with Gers et al.'s forget gate: Chien et al. 2021, Eq. 1."""
    z = shares(own, a, x, s["h"])
    b = own.get("gate_bias", 0.0)  # Gu et al.'s U- gate
    c = sigmoid(z["forget"] + b) * s["c"] + sigmoid(z["input"] - b) * np.tanh(z["cell"])
    return written(z, c)


def ur_lstm(own, x, s, dt, a):
    """Gu et al. 2020, listing 2: the uniform vector is added to the forget gate and subtracted from the refine gate."""
    z, b = shares(own, a, x, s["h"]), own.get("gate_bias", 0.0)
    f, r = sigmoid(z["forget"] + b), sigmoid(z["refine"] - b)
    g = r * (1.0 - (1.0 - f) ** 2) + (1.0 - r) * f**2
    return written(z, g * s["c"] + (1.0 - g) * np.tanh(z["cell"]))


def gru(own, x, s, dt, a):
    """torch.nn.GRU's documentation; the update gate z is called forget."""
    ours = by_gate(a, own["weight_ih"] @ x + own["bias_ih"])
    back = by_gate(a, own["weight_hh"] @ s["h"] + own["bias_hh"])
    r, z = (sigmoid(ours[gate] + back[gate]) for gate in ("reset", "forget"))
    n = np.tanh(ours["cell"] + r * back["cell"])
    return {"h": (1.0 - z) * n + z * s["h"]}


def janet(own, x, s, dt, a):
    """van der Westhuizen & Lasenby 2018."""
    z = shares(own, a, x, s["h"])
    return {"h": sigmoid(z["forget"]) * s["h"] + (1.0 - sigmoid(z["forget"] - a["beta"])) * np.tanh(z["cell"])}


def elstm(own, x, s, dt, a):
    """A coupled (or separate) LSTM whose forget gate is the sigmoid to the power of dt."""
    z = shares(own, a, x, s["h"])
    f = sigmoid(z["forget"]) ** dt
    return written(z, f * s["c"] + (1.0 - f if a["coupled"] else sigmoid(z["input"])) * np.tanh(z["cell"]))


def power_gate(own, z, age, dt, a):
    """The forget gate and the new lag t - k of Chien et al. 2021 with absolute times, from a time that does not count.

    Unit steps: Eqs. 4-8; epsilon_form="authors" is their code, which resets to t - epsilon and adds epsilon to the
    numerator of 1/ratio too. Other steps: Eqs. 12-13 of appendix A.1, f at most 1; the sentence after Eq. 15 has k_t
    where Eq. 13 has k~_t, and Eq. 13 is followed.
    """
    p, epsilon = a["power"] if "power" not in own else sigmoid(own["power"]), a["epsilon"]
    k, t, r = 3.0, age + 3.0 + dt, sigmoid(z["reset"])
    if a["epsilon_form"] == "authors":
        k = r * (t - epsilon) + (1.0 - r) * k
        return ((t - k + epsilon) / (t - k + 1.0)) ** p, t - k
    if dt == 1.0:
        k = r * t + (1.0 - r) * k
        return ((t - k + 1.0) / (t - k + epsilon)) ** (-p), t - k
    k_tilde = r * (t - dt + 1.0) + (1.0 - r) * k
    k = r * t + (1.0 - r) * k
    return np.minimum(((t - k + 1.0) / (t - dt - k_tilde + 1.0 + epsilon)) ** (-p), 1.0), t - k


def plstm(own, x, s, dt, a):
    z = shares(own, a, x, s["h"])
    f, age = power_gate(own, z, s["age"], dt, a)
    i = 1.0 - f if a["coupled"] else sigmoid(z["input"])
    return written(z, f * s["c"] + i * np.tanh(z["cell"])) | {"age": age}


def plscan(own, x, s, dt, a):
    """Chien et al. 2021 with gates of the input alone."""
    z = shares(own, a, x)
    f, age = power_gate(own, z, s["age"], dt, a)
    return written(z, f * s["c"] + (1.0 - f) * np.tanh(z["cell"])) | {"age": age}


def pgru(own, x, s, dt, a):
    """A GRU that keeps by Chien et al.'s gate."""
    z, h = shares(own, a, x, s["h"]), s["h"]
    f, age = power_gate(own, z, s["age"], dt, a)
    u = np.tanh(shares(own, a, x)["cell"] + sigmoid(z["read"]) * by_gate(a, own["weight_hh"] @ h)["cell"])
    return {"h": f * h + (1.0 - f) * u, "age": age}


def cumax(z):
    e = np.exp(z - z.max())
    return np.array([e[: k + 1].sum() for k in range(len(e))]) / e.sum()


def effective_gates(gate, z, b, chunk=1, fine_input=True):
    """Gu et al. 2020, listings 1 and 2, Eqs. 16-20 and 25-34: forget and input gate, from pre-activations by name.

    b: the bias vector of c, u, um, ur, the number of - and r. fine_input=False: a GRU, which has no input gate.
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
    master_f, master_i = (np.array([m[k // chunk] for k in range(len(z["forget"]))]) for m in (master_f, master_i))
    f = sigmoid(z["forget"])
    i = sigmoid(z["input"]) if fine_input else 1.0 - f
    w = master_f * master_i
    return f * w + (master_f - w), i * w + (master_i - w)


def gate_bias(own, a):
    """The bias vector of a gate; the number of - and r is an argument."""
    return a["forget_bias"] if a["gate"] in ("-", "r") else own.get("gate_bias")


def gated_lstm(own, x, s, dt, a):
    """Gu et al. 2020, Eqs. 1 and 5: an LSTM with one of the nine gates."""
    z = shares(own, a, x, s["h"])
    f, i = effective_gates(a["gate"], z, gate_bias(own, a), a["downsize"])
    return written(z, f * s["c"] + i * np.tanh(z["cell"]))


def gated_gru(own, x, s, dt, a):
    """A GRU with one of the nine gates in the place of its update gate; gru_form="update": the gate weights the new."""
    z, h = shares(own, a, x, s["h"]), s["h"]
    f, i = effective_gates(a["gate"], z, gate_bias(own, a), a["downsize"], fine_input=False)
    if a["gru_form"] == "update":
        f, i = i, f
    u = np.tanh(shares(own, a, x)["cell"] + sigmoid(z["reset"]) * by_gate(a, own["weight_hh"] @ h)["cell"])
    return {"h": f * h + i * u}


def slstm(own, x, s, dt, a):
    """Beck et al. 2024, section 2.2: c, n and m. Ours are c / n and m + ln n; here m starts as ln n, and n as 1."""
    size = own["weight_hh"].shape[1]
    h, new = s["h"], {"h": [], "c": [], "log_n": []}
    for unit in range(len(h)):
        head = slice(unit // size * size, unit // size * size + size)
        rows = [unit + gate * len(h) for gate in range(4)]
        i, f, z, o = (own["weight_ih"][r] @ x + own["weight_hh"][r] @ h[head] + own["bias"][r] for r in rows)
        log_f = np.log(sigmoid(f)) if a["forget"] == "sigmoid" else f
        m = max(log_f + s["log_n"][unit], i)
        i_stable, f_stable = np.exp(i - m), np.exp(log_f + s["log_n"][unit] - m)
        c, n = f_stable * s["c"][unit] + i_stable * np.tanh(z), f_stable + i_stable
        new["h"].append(sigmoid(o) * c / n)
        new["c"].append(c / n)
        new["log_n"].append(m + np.log(n))
    return new


def openness(t, tau, s, r, leak):
    """Neil et al. 2016, equation 6: how far a unit's gate is open at the time t."""
    phi = np.fmod(np.fmod(t - s, tau) + tau, tau) / tau
    if phi < r / 2:
        return 2 * phi / r
    return 2 - 2 * phi / r if phi < r else leak * phi


def phased(own, x, s, dt, a):
    """Neil et al. 2016, equations 1 to 10, unit by unit."""
    assert a["peephole"] == ("peephole_input" in own)
    H = len(s["h"])
    W, U, b = (own[name].reshape(4, H, -1) for name in ("weight_ih", "weight_hh", "bias"))
    w = [own.get(f"peephole_{name}", np.zeros(H)) for name in ("input", "forget", "output")]
    new, leak = {k: v.copy() for k, v in s.items()}, a["leak"] if a["training"] else 0.0
    for u in range(H):
        z = [W[gate, u] @ x + U[gate, u] @ s["h"] + b[gate, u, 0] for gate in range(4)]
        i, f = sigmoid(z[0] + w[0][u] * s["c"][u]), sigmoid(z[1] + w[1][u] * s["c"][u])
        proposed = f * s["c"][u] + i * np.tanh(z[2])
        o = sigmoid(z[3] + w[2][u] * proposed)
        new["time"][u] += dt
        k = openness(new["time"][u], abs(own["period"][u]), own["shift"][u], abs(own["open_ratio"][u]), leak)
        new["h"][u] = k * o * np.tanh(proposed) + (1 - k) * s["h"][u]
        new["c"][u] = k * proposed + (1 - k) * s["c"][u]
    return new


def grud(own, x, s, dt, a):
    """Che et al. 2018, Eqs. 10 to 17, with the mean 0; V, the weights of the flags, are columns of W."""

    def fade(z):
        return np.exp(-np.maximum(0.0, z))

    flags = a["flags"]
    known, h, since = np.array([x[k] for _, k in flags]), s["h"], s["since"] + dt
    last, x = s["last"].copy(), x.copy()
    for k, (d, _) in enumerate(flags):
        faded = fade(own["fade_x_weight"][k] * since[k] + own["fade_x_bias"][k]) * last[k]
        last[k], x[d] = known[k] * x[d] + (1 - known[k]) * last[k], x[d] + (1 - known[k]) * faded
    (W_r, W_z, W), (U_r, U_z, U), (b_r, b_z, b) = (np.split(own[k], 3) for k in ("weight_ih", "weight_hh", "bias"))
    h = fade(own["fade_h_weight"] @ since + own["fade_h_bias"]) * h
    r = sigmoid(W_r @ x + U_r @ h + b_r)
    z = sigmoid(W_z @ x + U_z @ h + b_z)
    h = (1 - z) * h + z * np.tanh(W @ x + U @ (r * h) + b)
    return {"h": h, "last": last, "since": (1 - known) * since if flags else s["since"]}


# --- Cells in continuous time -----------------------------------------------------------------------------------------
def leaky(own, x, s, dt, a):
    """Leaky integrators: tau dh/dt = -h + u, solved for a u that is constant during a step."""
    u = np.tanh(shares(own, a, x, s["h"])["cell"])
    return {"h": u + (s["h"] - u) * np.exp(-dt / np.exp(own["log_tau"]))}


def cfc(own, x, s, dt, a):
    """Hasani et al. 2022, with their code's time gate."""
    V, W, b = (np.split(own[name], 4) for name in ("weight_ih", "weight_hh", "bias"))
    first, second, rate, phase = (W[k] @ s["h"] + V[k] @ x + b[k] for k in range(4))
    gate = sigmoid(rate * dt + phase)
    return {"h": np.tanh(first) * (1.0 - gate) + gate * np.tanh(second)}


def lem(own, x, s, dt, a):
    """Rusch et al. 2022, Eq. 3: V and b of all four lines, W_1, W_2, W_z on y, and W_y on the new z."""
    V, W, b = (np.split(own[name], 4) for name in ("weight_ih", "weight_hh", "bias"))
    y, z = s["h"], s["z"]
    kept_y = (1.0 - a["delta"] * sigmoid(W[0] @ y + V[0] @ x + b[0])) ** dt
    kept_z = (1.0 - a["delta"] * sigmoid(W[1] @ y + V[1] @ x + b[1])) ** dt
    z = kept_z * z + (1.0 - kept_z) * np.tanh(W[2] @ y + V[2] @ x + b[2])
    return {"h": kept_y * y + (1.0 - kept_y) * np.tanh(W[3] @ z + V[3] @ x + b[3]), "z": z}


def cornn(own, x, s, dt, a):
    """Rusch & Mishra 2021, Eq. 3 with the old z in the damping: W y + the other W z + V u + b."""
    delta, gamma, epsilon, y, z = a["delta"], a["gamma"], a["epsilon"], s["h"], s["z"]
    force = np.tanh(own["weight_hh"] @ y + own["weight_zh"] @ z + own["weight_ih"] @ x + own["bias"])
    z = z + delta * dt * force - delta * dt * gamma * y - delta * dt * epsilon * z
    return {"h": y + delta * dt * z, "z": z}


def schedule(own, periods, unit, time):
    """Yin et al. 2026: the sum of sines whose sign is the switch of a unit."""
    size, total = len(own["switch_bias"]), own["switch_bias"][unit]
    for k, period in enumerate(periods):
        place = k * size + unit
        total += own["amplitude"][place] * np.sin(2 * np.pi * time / period + own["phase"][place])
    return total


def surnn(own, x, s, dt, a):
    h, time = s["h"], s["time"] + dt
    new = h.copy()
    for unit in range(len(h)):
        if schedule(own, a["periods"], unit, time[unit]) > 0:
            new[unit] = np.tanh(own["weight_ih"][unit] @ x + own["weight_hh"][unit] @ h + own["bias"][unit])
    return {"h": new, "time": time}


# --- Cells whose gates read the input alone ---------------------------------------------------------------------------
def mingru(own, x, s, dt, a):
    """Feng et al. 2024, minGRU: h = (1 - z) h + z u; 1 - z, here called forget, to the power of dt."""
    z = shares(own, a, x)
    kept = (1.0 - sigmoid(-z["forget"])) ** dt
    return {"h": kept * s["h"] + (1.0 - kept) * z["cell"]}


def signed_mingru(own, x, s, dt, a):
    """Feng et al. 2024, with the factor of the old state taken to 2 f - 1 (Grazzi et al. 2024)."""
    z = shares(own, a, x)
    f = sigmoid(z["forget"]) ** dt
    return {"h": (2.0 * f - 1.0) * s["h"] + (1.0 - f) * z["cell"]}


def minlstm(own, x, s, dt, a):
    """Feng et al. 2024, minLSTM: f and i divided by their sum; f to the power of dt, and i what is missing to 1."""
    z = shares(own, a, x)
    f, i = sigmoid(z["forget"]), sigmoid(z["input"])
    f, i = f / (f + i), i / (f + i)
    if dt != 1.0:
        f = f**dt
        i = 1.0 - f
    return {"h": f * s["h"] + i * z["cell"]}


def lru(own, x, s, dt, a):
    """Orvieto et al. 2023, in complex numbers: z = lambda z + gamma (B x + b), whose real part is the output."""
    drive = shares(own, a, x)
    log_lambda = -np.exp(own["nu_log"]) + 1j * np.exp(own["theta_log"])
    z = np.exp(log_lambda * dt) * (s["h"] + 1j * s["imaginary"])
    z = z + np.exp(own["gamma_log"]) * (drive["real"] + 1j * drive["imaginary"])
    return {"h": z.real, "imaginary": z.imag}


def rglru(own, x, s, dt, a):
    """De et al. 2024, Eqs. 1-4, with a = sigmoid(decay)."""
    r, i, u = np.split(own["weight_ih"] @ x + own["bias"], 3)
    decay = sigmoid(own["decay"]) ** (a["c"] * sigmoid(r) * dt)
    decay = 2.0 * decay - 1.0 if a["signed"] else decay
    return {"h": decay * s["h"] + np.sqrt(1.0 - decay**2) * (sigmoid(i) * u)}


def hgrn(own, x, s, dt, a):
    """Qin et al. 2023, section 3, with a real state: lambda = gamma + (1 - gamma) mu."""
    W, b = (np.split(own[name], 3) for name in ("weight_ih", "bias"))
    mu, c, g = (W[k] @ x + b[k] for k in range(3))
    gamma = sigmoid(own["bound"]) if "bound" in own else 0.0
    kept = (gamma + (1.0 - gamma) * sigmoid(mu)) ** dt
    c = kept * s["c"] + (1.0 - kept) * c * sigmoid(c)
    return {"h": sigmoid(g) * c, "c": c}


def paragru(own, x, s, dt, a):
    """Danieli et al. 2025, Eq. 3.1a with diagonal A; z has the opposite sign of our forget gate."""
    B, b, A = (np.split(own[name], 3) for name in ("weight_ih", "bias", "diagonal"))
    h = s["h"]
    z = sigmoid(-(np.diag(A[0]) @ h + B[0] @ x + b[0]))
    r = sigmoid(np.diag(A[1]) @ h + B[1] @ x + b[1])
    return {"h": (1.0 - z) * h + z * np.tanh(np.diag(A[2]) @ (h * r) + B[2] @ x + b[2])}


def paralstm(own, x, s, dt, a):
    """Danieli et al. 2025, Eq. 3.1b with diagonal A and C."""
    B, b, A = (np.split(own[name], 3) for name in ("weight_ih", "bias", "diagonal"))
    C_f, C_o = np.split(own["peephole"], 2)
    h, c = s["h"], s["c"]
    f = sigmoid(np.diag(A[0]) @ h + np.diag(C_f) @ c + B[0] @ x + b[0])
    c = f * c + (1.0 - f) * np.tanh(np.diag(A[1]) @ h + B[1] @ x + b[1])
    return {"h": sigmoid(np.diag(A[2]) @ h + np.diag(C_o) @ c + B[2] @ x + b[2]) * np.tanh(c), "c": c}


def indrnn(own, x, s, dt, a):
    """Li et al. 2018, Eq. 4."""
    z = own["weight_ih"] @ x + own["u"] * s["h"] + own["bias"]
    return {"h": np.maximum(z, 0.0) if a["activation"] == "relu" else np.tanh(z)}


# --- Orthogonal and unitary matrices ----------------------------------------------------------------------------------
def exprnn(own, x, s, dt, a):
    """Lezcano-Casado & Martinez-Rubio 2019: modrelu(W_x x + exp(A) h), the exponential by its power series."""
    H = len(s["h"])
    A = np.zeros((H, H))
    A[np.tril_indices(H, -1)] = own["skew"]
    A = A - A.T
    W, term = np.eye(H), np.eye(H)
    for n in range(1, 60):
        term = term @ A / n
        W = W + term
    z = own["weight_ih"] @ x + W @ s["h"]
    return {"h": np.sign(z) * np.maximum(np.abs(z) + own["bias"], 0.0)}


def complex_step(own, x, s, turned):
    """Arjovsky et al. 2016, equations 6 and 8: modReLU of V x + W z, whose real and imaginary parts are the units."""
    N = len(s["h"]) // 2
    z = (own["weight_ih"][:N] + 1j * own["weight_ih"][N:]) @ x + turned(s["h"][:N] + 1j * s["h"][N:])
    modulus = np.sqrt(np.abs(z) ** 2 + 1e-10)
    z = z * np.maximum(modulus + own["bias"], 0) / modulus
    return {"h": np.concatenate([z.real, z.imag])}


def urnn(own, x, s, dt, a):
    """Arjovsky et al. 2016: W is one factor after another, with numpy's Fourier transform."""
    N = len(s["h"]) // 2
    v = own["reflections"][:, :N] + 1j * own["reflections"][:, N:]

    def reflect(z, v):
        return z - 2 * v * (np.conj(v) @ z) / (np.conj(v) @ v)

    def turned(z):
        z = np.fft.fft(np.exp(1j * own["phases"][0]) * z, norm="ortho")
        z = np.exp(1j * own["phases"][1]) * reflect(z, v[0])[own["permutation"]]
        return np.exp(1j * own["phases"][2]) * reflect(np.fft.ifft(z, norm="ortho"), v[1])

    return complex_step(own, x, s, turned)


def pairs_of(N, a):
    """The pairs of N units in the order in which they are rotated."""
    if a["style"] == "fft":
        distances = [2**k for k in reversed(range(int(np.log2(N))))]
        return [(i, i + d) for d in distances for i in range(N) if (i // d) % 2 == 0]
    even, odd = [(i, i + 1) for i in range(0, N - 1, 2)], [(i, i + 1) for i in range(1, N - 1, 2)]
    return [pair for layer in range(a["capacity"]) for pair in (even, odd)[layer % 2]]


def eurnn(own, x, s, dt, a):
    """Jing et al. 2017, section 4: one rotation after another, then the phases, then as the uRNN."""

    def turned(z):
        z, pairs = z.copy(), pairs_of(len(z), a)
        for (i, j), theta, phi in zip(pairs, own["theta"], own["phi"], strict=True):
            R = np.array([[np.exp(1j * phi) * np.cos(theta), -np.exp(1j * phi) * np.sin(theta)]] * 2)
            R[1] = np.sin(theta), np.cos(theta)
            z[[i, j]] = R @ z[[i, j]]
        return np.exp(1j * own["phases"]) * z

    return complex_step(own, x, s, turned)


def goru(own, x, s, dt, a):
    """Jing et al. 2019, section 3."""
    h, H = s["h"], len(s["h"])
    W, U, bias = own["weight_ih"].reshape(3, H, -1), own["weight_hh"].reshape(2, H, H), own["bias"].reshape(3, H)
    turned = h.copy()
    for (i, j), theta in zip(pairs_of(H, a), own["theta"], strict=True):
        cos, sin, a, b = np.cos(theta), np.sin(theta), turned[i], turned[j]
        turned[i], turned[j] = cos * a - sin * b, sin * a + cos * b
    f, r = (sigmoid(W[k] @ x + U[k] @ h + bias[k]) for k in range(2))
    z = W[2] @ x + r * turned
    return {"h": f * h + (1 - f) * np.sign(z) * np.maximum(np.abs(z) + bias[2], 0)}


# --- Memories beside the units ----------------------------------------------------------------------------------------
def nru(own, x, s, dt, a):
    """Chandar et al. 2019, with the mean over the heads."""
    K, M, memory = a["heads"], a["memory_size"], s["memory"]

    def directions(p, q):
        """The K rows of M numbers of the outer product, each divided by its 5-norm."""
        return [row / np.sum(np.abs(row) ** 5) ** 0.2 for row in np.outer(p, q).reshape(K, M)]

    z = own["weight_ih"] @ x + own["weight_hh"] @ s["h"] + own["weight_memory"] @ memory + own["bias"]
    h = np.maximum(z, 0)
    read = own["weight_heads"] @ np.concatenate([h, memory]) + own["bias_heads"]
    strengths, rest = read[: 2 * K].reshape(2, K), read[2 * K :].reshape(4, -1)
    v, w = directions(*rest[:2]), directions(*rest[2:])
    return {"h": h, "memory": memory + sum(strengths[0, k] * v[k] - strengths[1, k] * w[k] for k in range(K)) / K}


def sru(own, x, s, dt, a):
    """Oliva et al. 2017, section 3, with alpha^dt for alpha."""
    averages, n = s["averages"].copy(), len(own["bias"])
    r = np.maximum(own["weight_summary"] @ averages + own["bias_summary"], 0)
    phi = np.maximum(own["weight_ih"] @ x + own["weight_statistics"] @ r + own["bias"], 0)
    for k, alpha in enumerate(a["alphas"]):
        part, kept = slice(n * k, n * k + n), alpha**dt
        averages[part] = kept * averages[part] + (1 - kept) * phi
    return {"h": np.maximum(own["weight_output"] @ averages + own["bias_output"], 0), "averages": averages}


def layer_norm(z, gain, offset):
    centred = z - z.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-5) * gain + offset


def attention_block(p, A, heads, key_size):
    """Santoro et al. 2018, section 3.2, as their code has it: attention of every row to every row, then the MLP."""
    V = A.shape[1] // heads
    qkv = [layer_norm(p["qkv.weight"] @ row + p["qkv.bias"], p["qkv_norm.weight"], p["qkv_norm.bias"]) for row in A]
    attended = np.zeros_like(A)
    for h in range(heads):
        of_head = [z[h * (2 * key_size + V) : (h + 1) * (2 * key_size + V)] for z in qkv]
        for j, query in enumerate(of_head):
            scores = np.array([query[:key_size] @ row[key_size : 2 * key_size] for row in of_head])
            weights = np.exp(scores / np.sqrt(key_size))
            weights /= weights.sum()
            attended[j, h * V : (h + 1) * V] = weights @ np.array([row[2 * key_size :] for row in of_head])
    A = np.stack([layer_norm(row, p["norm.weight"], p["norm.bias"]) for row in A + attended])
    hidden = np.maximum(A @ p["mlp.0.weight"].T + p["mlp.0.bias"], 0.0)
    mlp = hidden @ p["mlp.2.weight"].T + p["mlp.2.bias"]
    return np.stack([layer_norm(row, p["mlp_norm.weight"], p["mlp_norm.bias"]) for row in A + mlp])


def rmc(own, x, s, dt, a):
    """Santoro et al. 2018 with one of the nine gates, whose own bias is in their linear maps."""
    memories = a["memories"]
    M, row = s["h"].reshape(memories, -1), own["weight_ih"] @ x + own["bias"]
    size = M.shape[1]
    A = np.concatenate([M, row[None]])
    for k in range(a["blocks"]):
        prefix = f"blocks.{k}."
        block = {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}
        A = attention_block(own | block, A, a["heads"], a["key_size"] or size // a["heads"])
    names = a["gates"][1:]
    heights = [1 if a["gate_style"] == "memory" else size // a["downsize"] if "master" in n else size for n in names]
    bias, ends, new = own["bias_gates"] + own["bias_memory"], np.cumsum(heights), np.zeros_like(M)
    for n in range(memories):
        pre = own["weight_gates"] @ row + own["weight_memory"] @ np.tanh(M[n]) + bias
        z = dict(zip(names, np.split(pre, ends[:-1]), strict=True))
        f, i = effective_gates(a["gate"], z, gate_bias(own, a), a["downsize"])
        new[n] = f * M[n] + i * np.tanh(A[n])
    return {"h": new.flatten()}


STEPS = {
    cells.LSTMCell: lstm, cells.URLSTMCell: ur_lstm, cells.PLSTMCell: plstm, cells.GatedLSTMCell: gated_lstm,
    cells.GatedGRUCell: gated_gru, cells.GRUCell: gru, cells.PGRUCell: pgru, cells.JANETCell: janet,
    cells.ELSTMCell: elstm, cells.LeakyRNNCell: leaky, cells.MinGRUCell: mingru, cells.MinLSTMCell: minlstm,
    cells.PLScanCell: plscan, cells.LRUCell: lru, cells.IndRNNCell: indrnn, cells.PhasedLSTMCell: phased,
    cells.NRUCell: nru, cells.SRUCell: sru, cells.URNNCell: urnn, cells.EURNNCell: eurnn,
    cells.GORUCell: goru, cells.ExpRNNCell: exprnn, cells.RMCCell: rmc, cells.SLSTMCell: slstm,
    cells.RGLRUCell: rglru, cells.SignedMinGRUCell: signed_mingru, cells.LEMCell: lem, cells.CoRNNCell: cornn,
    cells.CfCCell: cfc, cells.ParaGRUCell: paragru, cells.ParaLSTMCell: paralstm, cells.HGRNCell: hgrn,
    cells.GRUDCell: grud, cells.SuRNNCell: surnn,
}  # fmt: skip
