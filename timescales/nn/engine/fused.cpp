// The time loop of a gated recurrent layer on the CPU: forward and exact backward, float32.
//
// Four parts: vectors and their functions; the equations of the cells, forward and backward; matrix products; the loops
// over time, which are templates over the cell.
//
// A step is computed while its numbers are in the cache: for one group of units at a time, the product with the weights
// writes the pre-activations of the gates, and the pointwise equations follow. Backward does the same in reverse order,
// and overwrites the saved activations with the gradients of the pre-activations. Each thread has a slice of the batch
// for the whole sequence, so threads do not wait for each other. If the batch is small and the weights are large, they
// share the units instead, with one barrier per step.
//
// Letters: S steps, B batch, I input, H hidden, G gates. The C interface is at the end. No other library is needed.

#include "vectors.h"
#include "products.h"
#include "threads.h"

static INLINE Vec at_least_zero(const Vec& x) { return maximum(Vec{}, x); }
static INLINE void exponential(const Vec& x, Vec& value, Vec& minus_one) {
    for (int i = 0; i < 2; i++) exponential(x.r[i], value.r[i], minus_one.r[i]);
}
static INLINE Vec where_negative(const Vec& x, const Vec& yes, const Vec& no) {
    return {x.r[0] < 0.0f ? yes.r[0] : no.r[0], x.r[1] < 0.0f ? yes.r[1] : no.r[1]};
}

// ---------------------------------------------------------------------------------------------- cells
//
// A cell has G gates, optionally an age, and two functions of one vector of units.
//   forward:  `a` has the G pre-activations, and afterwards what backward needs to know. Returns the new c, age, h.
//   backward: `a` has what forward left, and afterwards the G gradients of the pre-activations. dh, dc and dage are the
//             gradients of the step's results, and afterwards dc and dage those of the step before. Adds to dpower.
// All cells have h' = o tanh(c').

struct Unit {  // constants of the sequence, and the time of the step
    Vec power;
    float epsilon, floor, dt;
};
struct Before {
    Vec c, age;
};
struct After {
    Vec c, age, h;
};
struct Gradient {
    Vec dh, dc, dage, dpower;
};

// Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000).
//   i, f, o = sigmoid; g = tanh; c' = f c + i g
struct LSTM {
    static constexpr int G = 4;
    static constexpr bool aged = false;
    static INLINE After forward(Vec (&a)[G], const Before& old, const Unit&) {
        Vec i = a[0] = sigmoid(a[0]), f = a[1] = sigmoid(a[1]);
        Vec g = a[2] = hyperbolic_tangent(a[2]), o = a[3] = sigmoid(a[3]);
        Vec c = f * old.c + i * g;
        return {c, Vec{}, o * hyperbolic_tangent(c)};
    }
    static INLINE void backward(Vec (&a)[G], const Before& old, const Unit&, Gradient& d) {
        Vec i = a[0], f = a[1], g = a[2], o = a[3];
        Vec tc = hyperbolic_tangent(f * old.c + i * g);
        Vec dc = d.dc + d.dh * o * (1.0f - tc * tc);
        a[0] = dc * g * i * (1.0f - i);
        a[1] = dc * old.c * f * (1.0f - f);
        a[2] = dc * i * (1.0f - g * g);
        a[3] = d.dh * tc * o * (1.0f - o);
        d.dc = dc * f;
    }
};

// Refine gate (Gu et al. 2020, listing 2 and Eqs. 10-12).
//   f, r, o = sigmoid; u = tanh; gate = 2 r f + (1 - 2 r) f^2; c' = gate c + (1 - gate) u
struct Refine {
    static constexpr int G = 4;
    static constexpr bool aged = false;
    static INLINE Vec gate(Vec f, Vec r) { return f * (2.0f * r + (1.0f - 2.0f * r) * f); }
    static INLINE After forward(Vec (&a)[G], const Before& old, const Unit&) {
        Vec f = a[0] = sigmoid(a[0]), r = a[1] = sigmoid(a[1]);
        Vec u = a[2] = hyperbolic_tangent(a[2]), o = a[3] = sigmoid(a[3]);
        Vec keep = gate(f, r);
        Vec c = keep * old.c + (1.0f - keep) * u;
        return {c, Vec{}, o * hyperbolic_tangent(c)};
    }
    static INLINE void backward(Vec (&a)[G], const Before& old, const Unit&, Gradient& d) {
        Vec f = a[0], r = a[1], u = a[2], o = a[3];
        Vec keep = gate(f, r);
        Vec tc = hyperbolic_tangent(keep * old.c + (1.0f - keep) * u);
        Vec dc = d.dc + d.dh * o * (1.0f - tc * tc);
        Vec dkeep = dc * (old.c - u);
        // d gate / df = 2 r + 2 (1 - 2 r) f;  d gate / dr = 2 f (1 - f)
        a[0] = dkeep * 2.0f * (r + (1.0f - 2.0f * r) * f) * f * (1.0f - f);
        a[1] = dkeep * 2.0f * f * (1.0f - f) * r * (1.0f - r);
        a[2] = dc * (1.0f - keep) * (1.0f - u * u);
        a[3] = d.dh * tc * o * (1.0f - o);
        d.dc = dc * keep;
    }
};

// Power-law LSTM in its age form (Chien et al. 2021, Eqs. 4-8 and appendix A.1; see timescales/nn/cells/plstm.py).
//   r, o = sigmoid; q = 1 - r; g = tanh
//   age'   = q (age + dt) + r floor
//   before = q (age + 1)  + r floor + epsilon
//   L = ln((age' + 1) / before) = ln(1 + (r + q dt - epsilon) / before), at least 0;   f = exp(-p L)
//   i = 1 - f (coupled) or a separate sigmoid gate;   c' = f c + i g
template <bool coupled>
struct PowerLaw {
    static constexpr int G = coupled ? 3 : 4;
    static constexpr bool aged = true;

    // Both r and 1 - r must be exact, however close to 0 they are: ages grow without bound while r is tiny, and a full
    // reset multiplies them by 1 - r. So the smaller of the two is saved, 1 - r with a minus sign.
    struct Reset {
        Vec r, q;
    };
    static INLINE Reset reset_of(Vec x) {
        Vec e = finite_exp(-x), r = 1.0f / (1.0f + e);
        return {r, e * r};
    }
    static INLINE Vec save(const Reset& s) { return where_negative(s.q - s.r, -s.q, s.r); }
    static INLINE Reset saved(Vec v) { return {where_negative(v, 1.0f + v, v), where_negative(v, -v, 1.0f - v)}; }

    struct Forgetting {
        Vec age, before, excess, L, f, lost;  // lost = 1 - f
    };
    static INLINE Forgetting forget(const Reset& s, const Before& old, const Unit& unit) {
        Forgetting y;
        y.age = s.q * (old.age + unit.dt) + s.r * unit.floor;
        y.before = s.q * (old.age + 1.0f) + (s.r * unit.floor + unit.epsilon);
        y.excess = s.q * unit.dt + (s.r - unit.epsilon);
        y.L = log_of_at_least_one(at_least_zero(y.excess) / y.before);
        Vec log_f = -unit.power * y.L, minus_lost;
        exponential(log_f, y.f, minus_lost);
        y.lost = -minus_lost;
        return y;
    }

    static INLINE After forward(Vec (&a)[G], const Before& old, const Unit& unit) {
        Reset s = reset_of(a[0]);
        Forgetting y = forget(s, old, unit);
        a[0] = save(s);
        Vec i = y.lost;
        if constexpr (!coupled) i = a[1] = sigmoid(a[1]);
        Vec g = a[G - 2] = hyperbolic_tangent(a[G - 2]), o = a[G - 1] = sigmoid(a[G - 1]);
        Vec c = y.f * old.c + i * g;
        return {c, y.age, o * hyperbolic_tangent(c)};
    }
    static INLINE void backward(Vec (&a)[G], const Before& old, const Unit& unit, Gradient& d) {
        Reset s = saved(a[0]);
        Forgetting y = forget(s, old, unit);
        Vec g = a[G - 2], o = a[G - 1], i = y.lost;
        if constexpr (!coupled) i = a[1];
        Vec tc = hyperbolic_tangent(y.f * old.c + i * g);
        Vec dc = d.dc + d.dh * o * (1.0f - tc * tc);
        Vec df = coupled ? dc * (old.c - g) : dc * old.c;
        if constexpr (!coupled) a[1] = dc * g * i * (1.0f - i);
        a[G - 2] = dc * i * (1.0f - g * g);
        a[G - 1] = d.dh * tc * o * (1.0f - o);
        d.dc = dc * y.f;
        Vec dlog = -df * y.f;  // gradient of p L
        d.dpower = d.dpower + dlog * y.L;
        Vec dL = where_negative(y.excess, Vec{}, dlog * unit.power);  // L is constant where it is held at 0
        Vec dage = d.dage + dL / (y.age + 1.0f), dbefore = -dL / y.before;
        // d age'/dr = floor - (age + dt), d before/dr = floor - (age + 1), dr/dz = r q
        a[0] = -(s.r * s.q) * (dbefore * (old.age + (1.0f - unit.floor)) + dage * (old.age + (unit.dt - unit.floor)));
        d.dage = s.q * (dbefore + dage);
    }
};

// ---------------------------------------------------------------------------------------------- the interface's data

// Tensors are contiguous unless strides are given. A null pointer: the tensor does not exist or is not wanted.
extern "C" struct Problem {
    int64_t cell, threads, S, B, I, H, keep;  // keep: 1 if backward follows
    float epsilon, floor;
    const float *x, *ih, *hh, *bias, *power;  // (S, B, I), (G*H, I), (G*H, H), (G*H), (H)
    int64_t x_step, x_row;
    const float *h, *c, *age;  // initial state, (B, H) each
    const float* dt;           // (S, B)
    const uint8_t* mask;       // (S, B)
    const int64_t* order;      // (B): the index in the batch of the loop's row b; with a mask, see fused.py
    float *output, *h_last, *c_last, *age_last;
    float* workspace;  // what backward needs to know, and scratch memory
    // backward: gradients of the results, then of the arguments
    const float* d_output;
    int64_t d_output_step, d_output_row;
    const float *d_h_last, *d_c_last, *d_age_last;
    float *d_x, *d_ih, *d_hh, *d_bias, *d_power, *d_h, *d_c, *d_age;

    // The workspace has the loop's order of rows, the tensors have the batch's.
    int64_t place(int64_t b) const { return order ? order[b] : b; }
    bool exists(int64_t t, int64_t b) const { return !mask || mask[t * B + place(b)]; }
};

// The layout of the workspace. Rows are an odd number of cache lines long: rows at distances of a power of two would
// share the same few places of the cache.
static int64_t odd_lines(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

constexpr int64_t CHUNK = 96;  // rows of dx, or of projected x, computed at a time

// With few rows and many inputs, loading the weights takes most of the time. Then the inputs' share of the
// pre-activations is computed in advance for a window of steps, so that a load of the weights serves many rows.
static bool projects_ahead(const Problem& p) { return p.I >= 32 && p.B < 32 * p.threads; }

struct Layout {
    int64_t groups, units, columns;  // units: H rounded up to whole groups; columns: G * units
    int64_t in;                      // length of [h, x, 1], which a step multiplies by the weights
    int64_t act_row, unit_row, in_row, grad_row;
    int64_t window, slots;        // steps of a window; steps whose activations are stored at a time
    int64_t act_step, unit_step;  // unit_step: 0 if only the current step is kept
    int64_t time_parts;           // parts of the weight gradients' sum over S and B
    // Kept from forward to backward: (slots, B, columns), (S + 1, B, units), the same.
    float *act, *c, *age;
    // Forward: two of (B, in); weights in tiles; see `project_ahead`.
    float *inputs, *weights, *ahead;
    // Backward: weights in tiles; (B, units) three times; (threads, units); see `sum_gradients`, `input_gradient`.
    float *weights_back = nullptr, *dh = nullptr, *dc = nullptr, *dage = nullptr, *dpower = nullptr;
    float *gradient = nullptr, *left = nullptr, *right = nullptr, *dx = nullptr;
    int64_t floats = 0;

    Layout(const Problem& p, int G, bool aged) {
        groups = ceil_div(p.H, WIDTH), units = groups * WIDTH, columns = G * units;
        act_row = odd_lines(columns), unit_row = odd_lines(units);
        in = p.H + p.I + 1, in_row = odd_lines(in), grad_row = odd_lines(columns);
        act_step = p.B * act_row, unit_step = p.keep ? p.B * unit_row : 0;
        window = projects_ahead(p) ? p.threads * CHUNK / p.B : 1;
        slots = p.keep ? p.S : window;
        for (time_parts = p.threads; time_parts > 4 && time_parts % 2 == 0;) time_parts /= 2;
        int64_t states = (p.keep ? p.S : 1) + 1;
        act = take(p, slots * p.B * act_row);
        c = take(p, states * p.B * unit_row);
        age = take(p, aged ? states * p.B * unit_row : 0);
        int64_t kept = floats;
        inputs = take(p, 2 * p.B * in_row);
        weights = take(p, columns * in);
        ahead = take(p, projects_ahead(p) ? p.threads * CHUNK * ahead_row(p) : 0);
        int64_t forward = floats;
        floats = kept;  // backward's scratch memory is where forward's was
        if (p.keep) {
            weights_back = take(p, columns * (units + ceil_div(p.I, WIDTH) * WIDTH));
            dh = take(p, p.B * unit_row), dc = take(p, p.B * unit_row), dage = take(p, p.B * unit_row);
            dpower = take(p, p.threads * units);
            gradient = take(p, time_parts * in * grad_row);
            left = take(p, p.threads * left_size()), right = take(p, p.threads * BLOCK * WIDTH);
            dx = take(p, p.threads * CHUNK * dx_row(p));
        }
        if (forward > floats) floats = forward;
    }
    static int64_t ahead_row(const Problem& p) { return odd_lines(p.I + 1); }
    static int64_t dx_row(const Problem& p) { return odd_lines(ceil_div(p.I, WIDTH) * WIDTH); }
    int64_t left_size() const { return ceil_div(in, ROWS) * ROWS * BLOCK + in_row + LINE; }  // tiles, one line

 private:
    float* take(const Problem& p, int64_t n) {
        float* place = p.workspace ? p.workspace + floats : nullptr;
        floats += ceil_div(n, LINE) * LINE;
        return place;
    }
};

// ---------------------------------------------------------------------------------------------- threads

// The rows of the batch and the groups of units of a thread. `sharers` threads have the same rows and synchronise at
// every step.
struct Share {
    Range rows, groups;
    int64_t sharer, sharers;
};

// Threads share the batch, the units, or both: whichever is cheapest by a rough count of cycles per step. A barrier
// costs little if every thread has a core, but milliseconds if other processes run there. So units are shared only if
// a step is long: few rows and many units.
static Share share(const Problem& p, const Layout& w, int G) {
    int64_t team = team_size(), best = 1;
    double least = 1e300;
    for (int64_t sharers = 1; sharers <= team && sharers <= w.groups; sharers++) {
        if (team % sharers) continue;
        double rows = ceil_div(p.B, team / sharers), weights = ceil_div(w.groups, sharers) * WIDTH * G * w.in;
        double multiply = weights / WIDTH * (rows > 4 ? rows : 4);  // a tile of few rows takes as long as one of four
        double bytes = 4 * weights, fetch = bytes / (bytes > 262144 ? 8 : 32);  // from the second-level cache or memory
        double cost = (multiply + fetch) * (sharers > 1 ? 1.2 : 1.0) + (sharers > 1 ? 1e5 : 0.0);
        if (cost < least) least = cost, best = sharers;
    }
    int64_t slices = team / best, me = thread_number();
    return {part(p.B, me / best, slices), part(w.groups, me % best, best), me % best, best};
}

// ---------------------------------------------------------------------------------------------- forward

// Weights in tiles: for each group of units and each gate, (in, WIDTH); units beyond H are zero.
template <class Cell>
static void pack_weights(const Problem& p, const Layout& w) {
    Range range = part(w.groups * Cell::G, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int64_t first = n / Cell::G * WIDTH, gate = n % Cell::G;
        float* to = w.weights + n * w.in * WIDTH;
        for (int64_t l = 0; l < WIDTH; l++) {
            bool exists = first + l < p.H;
            int64_t row = gate * p.H + first + l;
            for (int64_t k = 0; k < p.H; k++) to[k * WIDTH + l] = exists ? p.hh[row * p.H + k] : 0.0f;
            for (int64_t k = 0; k < p.I; k++) to[(p.H + k) * WIDTH + l] = exists ? p.ih[row * p.I + k] : 0.0f;
            to[(w.in - 1) * WIDTH + l] = exists ? p.bias[row] : 0.0f;
        }
    }
}

static void put_input(const Problem& p, const Layout& w, int64_t t, Range rows) {
    float* in = w.inputs + (t % 2) * p.B * w.in_row;
    for (int64_t b = rows.from; b < rows.to; b++) {
        std::memcpy(in + b * w.in_row + p.H, p.x + t * p.x_step + p.place(b) * p.x_row, p.I * sizeof(float));
        in[b * w.in_row + w.in - 1] = 1.0f;
    }
}

// Copy this thread's units of a (B, H) tensor to rows of the workspace, or zeros if there is no tensor. `pad`: write
// zeros beyond H.
static void fetch_units(const Problem& p, const Share& me, const float* tensor, float* to, int64_t to_row, bool pad) {
    int64_t first = me.groups.from * WIDTH, last = me.groups.to * WIDTH, end = last < p.H ? last : p.H;
    for (int64_t b = me.rows.from; b < me.rows.to; b++)
        for (int64_t u = first; u < (pad ? last : end); u++)
            to[b * to_row + u] = tensor && u < end ? tensor[p.place(b) * p.H + u] : 0.0f;
}
// Copy them back.
static void leave_units(const Problem& p, const Share& me, const float* from, int64_t from_row, float* tensor) {
    int64_t first = me.groups.from * WIDTH, last = me.groups.to * WIDTH, end = last < p.H ? last : p.H;
    for (int64_t b = me.rows.from; b < me.rows.to; b++)
        for (int64_t u = first; u < end; u++) tensor[p.place(b) * p.H + u] = from[b * from_row + u];
}

// Number of a thread's rows in the products of a step: all up to the last one that exists.
static int64_t taking_part(const Problem& p, int64_t t, Range rows) {
    int64_t last = rows.to;
    while (last > rows.from && !p.exists(t, last - 1)) last--;
    return last - rows.from;
}

template <class Cell>
static void pointwise_forward(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group) {
    const float *in = w.inputs + (t % 2) * p.B * w.in_row, *c_old = w.c + t * w.unit_step,
                *age_old = w.age + t * w.unit_step;
    float *next = w.inputs + ((t + 1) % 2) * p.B * w.in_row, *act = w.act + t % w.slots * w.act_step;
    float *c_new = w.c + (t + 1) * w.unit_step, *age_new = w.age + (t + 1) * w.unit_step;
    int64_t u = group * WIDTH;
    Unit unit{p.power ? load_cut(p.power + u, p.H - u) : Vec{}, p.epsilon, p.floor, 1.0f};
    for (int64_t b = me.rows.from; b < me.rows.to; b++) {
        int64_t at = b * w.unit_row + u;
        Before old{load(c_old + at), Cell::aged ? load(age_old + at) : Vec{}};
        After now{old.c, old.age, load_cut(in + b * w.in_row + u, p.H - u)};
        if (p.exists(t, b)) {  // a step that does not exist does not change the state
            if (p.dt) unit.dt = p.dt[t * p.B + p.place(b)];
            float* z = act + b * w.act_row + u;
            Vec a[Cell::G];
            // Units beyond H have weights of zero; an infinite input makes them NaN, which would reach all gradients.
            for (int g = 0; g < Cell::G; g++) a[g] = cut(load(z + g * w.units), p.H - u);
            now = Cell::forward(a, old, unit);
            for (int g = 0; g < Cell::G; g++) store(z + g * w.units, a[g]);
        }
        store(c_new + at, now.c);
        if (Cell::aged) store(age_new + at, now.age);
        store_cut(next + b * w.in_row + u, now.h, p.H - u);
        store_cut(p.output + (t * p.B + p.place(b)) * p.H + u, now.h, p.H - u);
    }
}

// The inputs' share of the pre-activations of a window of steps, `first` and those after it.
static void project_ahead(const Problem& p, const Layout& w, int G, int64_t first) {
    int64_t row = Layout::ahead_row(p);
    float* in = w.ahead + thread_number() * CHUNK * row;
    float* act = w.act + first % w.slots * w.act_step;
    int64_t steps = p.S - first < w.window ? p.S - first : w.window;
    Range range = part(steps * p.B, thread_number(), team_size());
    for (int64_t from = range.from; from < range.to; from += CHUNK) {
        int64_t n = range.to - from < CHUNK ? range.to - from : CHUNK;
        for (int64_t r = 0; r < n; r++) {
            const float* x = p.x + (first + (from + r) / p.B) * p.x_step + p.place((from + r) % p.B) * p.x_row;
            std::memcpy(in + r * row, x, p.I * sizeof(float));
            in[r * row + p.I] = 1.0f;
        }
        for (int64_t k = 0; k < w.groups * G; k++)
            product(n, p.I + 1, in, row, w.weights + (k * w.in + p.H) * WIDTH,
                    act + from * w.act_row + k % G * w.units + k / G * WIDTH, w.act_row, false);
    }
}

template <class Cell>
static void forward(const Problem& p) {
    bool ahead = projects_ahead(p);
    Layout w(p, Cell::G, Cell::aged);
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w, Cell::G);
        Range my_inputs = part(me.rows.size(), me.sharer, me.sharers);
        my_inputs = {me.rows.from + my_inputs.from, me.rows.from + my_inputs.to};
        pack_weights<Cell>(p, w);
        fetch_units(p, me, p.h, w.inputs, w.in_row, false);
        fetch_units(p, me, p.c, w.c, w.unit_row, true);
        if (Cell::aged) fetch_units(p, me, p.age, w.age, w.unit_row, true);
        put_input(p, w, 0, my_inputs);
        for (int64_t t = 0; t < p.S; t++) {
            if (t == 0 || (ahead && t % w.window == 0)) barrier();
            if (ahead && t % w.window == 0) {
                project_ahead(p, w, Cell::G, t);
                barrier();
            }
            const float* in = w.inputs + (t % 2) * p.B * w.in_row + me.rows.from * w.in_row;
            int64_t rows = taking_part(p, t, me.rows);
            for (int64_t group = me.groups.from; group < me.groups.to; group++) {
                for (int64_t g = 0; g < Cell::G; g++) {
                    float* z = w.act + t % w.slots * w.act_step + me.rows.from * w.act_row + g * w.units
                             + group * WIDTH;
                    const float* tiles = w.weights + (group * Cell::G + g) * w.in * WIDTH;
                    product(rows, ahead ? p.H : w.in, in, w.in_row, tiles, z, w.act_row, ahead);
                }
                pointwise_forward<Cell>(p, w, me, t, group);
            }
            if (t + 1 < p.S) put_input(p, w, t + 1, my_inputs);
            if (me.sharers > 1) barrier();
        }
        leave_units(p, me, w.inputs + p.S % 2 * p.B * w.in_row, w.in_row, p.h_last);
        leave_units(p, me, w.c + p.S * w.unit_step, w.unit_row, p.c_last);
        if (Cell::aged) leave_units(p, me, w.age + p.S * w.unit_step, w.unit_row, p.age_last);
    }
}

// ---------------------------------------------------------------------------------------------- backward

// weights_back: hh in tiles (columns, WIDTH) for each group of units, then ih in the same way for groups of inputs.
// The gradients of the pre-activations are multiplied by them.
template <class Cell>
static void pack_weights_back(const Problem& p, const Layout& w) {
    int64_t tiles = w.groups + (p.d_x ? ceil_div(p.I, WIDTH) : 0);
    Range range = part(tiles, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        bool recurrent = n < w.groups;
        const float* from = recurrent ? p.hh : p.ih;
        int64_t length = recurrent ? p.H : p.I, first = (recurrent ? n : n - w.groups) * WIDTH;
        for (int64_t k = 0; k < w.columns; k++) {
            int64_t unit = k % w.units, row = k / w.units * p.H + unit;
            float* to = w.weights_back + (n * w.columns + k) * WIDTH;
            for (int64_t l = 0; l < WIDTH; l++)
                to[l] = unit < p.H && first + l < length ? from[row * length + first + l] : 0.0f;
        }
    }
}

template <class Cell>
static void pointwise_backward(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group) {
    const float *c_old = w.c + t * w.unit_step, *age_old = w.age + t * w.unit_step;
    float *act = w.act + t * w.act_step, *dpower = w.dpower + thread_number() * w.units;
    int64_t u = group * WIDTH;
    Unit unit{p.power ? load_cut(p.power + u, p.H - u) : Vec{}, p.epsilon, p.floor, 1.0f};
    Vec power_sum = load(dpower + u);
    int64_t read = p.d_x ? me.rows.to : me.rows.from + taking_part(p, t, me.rows);  // rows whose gradients are
    for (int64_t b = me.rows.from; b < me.rows.to; b++) {
        int64_t at = b * w.unit_row + u;
        float* z = act + b * w.act_row + u;
        if (t > 0 && p.exists(t - 1, b)) {
            for (int g = 0; g < Cell::G; g++) soon(z - w.act_step + g * w.units);
            soon(c_old - w.unit_step + at);
            if (Cell::aged) soon(age_old - w.unit_step + at);
        }
        Vec a[Cell::G], dh = cut(load(w.dh + at), p.H - u);  // as in forward
        if (p.d_output)
            dh = dh + load_cut(p.d_output + t * p.d_output_step + p.place(b) * p.d_output_row + u, p.H - u);
        if (!p.exists(t, b)) {  // the state did not change: its gradient passes through
            store(w.dh + at, dh);
            if (b < read)
                for (int g = 0; g < Cell::G; g++) store(z + g * w.units, Vec{});
            continue;
        }
        if (p.dt) unit.dt = p.dt[t * p.B + p.place(b)];
        Before old{load(c_old + at), Cell::aged ? load(age_old + at) : Vec{}};
        Gradient d{dh, load(w.dc + at), Cell::aged ? load(w.dage + at) : Vec{}, power_sum};
        for (int g = 0; g < Cell::G; g++) a[g] = load(z + g * w.units);
        Cell::backward(a, old, unit, d);
        for (int g = 0; g < Cell::G; g++) store(z + g * w.units, flushed(a[g]));
        store(w.dh + at, Vec{});  // the product with the weights is added
        store(w.dc + at, d.dc);
        if (Cell::aged) store(w.dage + at, d.dage);
        power_sum = d.dpower;
    }
    store(dpower + u, power_sum);
}

// dh += dz_t U for one group of units.
static void recur_back(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group) {
    product(taking_part(p, t, me.rows), w.columns, w.act + t * w.act_step + me.rows.from * w.act_row, w.act_row,
            w.weights_back + group * w.columns * WIDTH, w.dh + me.rows.from * w.unit_row + group * WIDTH, w.unit_row,
            true);
}

// gradient (in, columns) = sum over steps and batch of [h_before, x, 1]^T dz: the gradients of hh, ih and bias at once.
// The rows that exist and the columns are divided among the threads; each part of the rows has a separate sum.
static void sum_gradients(const Problem& p, const Layout& w, int64_t time_part, Range panels) {
    float *left = w.left + thread_number() * w.left_size(), *right = w.right + thread_number() * BLOCK * WIDTH;
    float* line = left + w.left_size() - w.in_row - LINE;
    float* gradient = w.gradient + time_part * w.in * w.grad_row;
    int64_t existing = 0, t = 0, b = 0, row[BLOCK];  // (t, b) goes over all rows; `row`: the existing ones of a block
    auto walk = [&] {
        if (++b == p.B) b = 0, t++;
    };
    for (; t < p.S; walk()) existing += p.exists(t, b);
    Range range = part(existing, time_part, w.time_parts);
    t = b = 0;
    for (int64_t before = 0; before < range.from; walk()) before += p.exists(t, b);
    int64_t tiles = ceil_div(w.in, ROWS), blocks = ceil_div(range.size(), BLOCK);
    for (int64_t n = 0; n < blocks || n == 0; n++) {
        Range block = blocks ? part(range.size(), n, blocks) : Range{0, 0};
        for (int64_t k = 0; k < block.size(); k++, walk()) {  // a row of [h_before, x, 1], cut into the tiles' rows
            while (!p.exists(t, b)) walk();
            row[k] = t * p.B + b;
            const float* before = t ? p.output + (t - 1) * p.B * p.H : p.h;
            std::memcpy(line, before + p.place(b) * p.H, p.H * sizeof(float));
            std::memcpy(line + p.H, p.x + t * p.x_step + p.place(b) * p.x_row, p.I * sizeof(float));
            line[w.in - 1] = 1.0f;
            for (int64_t m = 0; m < tiles; m++)  // ROWS numbers each; the last ones of a short tile are not read
                std::memcpy(left + (m * block.size() + k) * ROWS, line + part(w.in, m, tiles).from,
                            ROWS * sizeof(float));
        }
        for (int64_t j = panels.from; j < panels.to; j++) {
            for (int64_t k = 0; k < block.size(); k++) {
                if (k + 16 < block.size()) soon(w.act + row[k + 16] * w.act_row + j * WIDTH);
                std::memcpy(right + k * WIDTH, w.act + row[k] * w.act_row + j * WIDTH, WIDTH * sizeof(float));
            }
            for (int64_t m = 0; m < tiles; m++) {
                Range r = part(w.in, m, tiles);
                tile_of<true>(r.size(), block.size(), left + m * block.size() * ROWS, 0, right,
                              gradient + r.from * w.grad_row + j * WIDTH, w.grad_row, n > 0);
            }
        }
    }
}

// Add the parts and transpose them: unit by unit to the rows of hh, ih and bias.
static void write_gradients(const Problem& p, const Layout& w) {
    Range range = part(w.columns / WIDTH, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int64_t gate = n * WIDTH / w.units, first = n * WIDTH % w.units;
        for (int64_t k = 0; k < w.in; k++) {
            const float* from = w.gradient + k * w.grad_row + n * WIDTH;
            for (int64_t l = 0; l < WIDTH && first + l < p.H; l++) {
                float sum = 0.0f;
                for (int64_t m = 0; m < w.time_parts; m++) sum += from[m * w.in * w.grad_row + l];
                int64_t row = gate * p.H + first + l;
                if (k < p.H) p.d_hh[row * p.H + k] = sum;
                else if (k < p.H + p.I) p.d_ih[row * p.I + k - p.H] = sum;
                else p.d_bias[row] = sum;
            }
        }
    }
}

// dx = dz W for all steps at once.
static void input_gradient(const Problem& p, const Layout& w) {
    int64_t row = Layout::dx_row(p), panels = ceil_div(p.I, WIDTH), rows = p.S * p.B;
    float* dx = w.dx + thread_number() * CHUNK * row;
    Range range = part(rows, thread_number(), team_size());
    for (int64_t from = range.from; from < range.to; from += CHUNK) {
        int64_t n = range.to - from < CHUNK ? range.to - from : CHUNK;
        for (int64_t j = 0; j < panels; j++)
            product(n, w.columns, w.act + from * w.act_row, w.act_row,
                    w.weights_back + (w.groups + j) * w.columns * WIDTH, dx + j * WIDTH, row, false);
        for (int64_t r = 0; r < n; r++) {
            int64_t to = (from + r) / p.B * p.B + p.place((from + r) % p.B);
            std::memcpy(p.d_x + to * p.I, dx + r * row, p.I * sizeof(float));
        }
    }
}

template <class Cell>
static void backward(const Problem& p) {
    Layout w(p, Cell::G, Cell::aged);
    std::memset(w.dpower, 0, p.threads * w.units * sizeof(float));
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w, Cell::G);
        pack_weights_back<Cell>(p, w);
        fetch_units(p, me, p.d_h_last, w.dh, w.unit_row, true);
        fetch_units(p, me, p.d_c_last, w.dc, w.unit_row, true);
        if (Cell::aged) fetch_units(p, me, p.d_age_last, w.dage, w.unit_row, true);
        barrier();
        for (int64_t t = p.S - 1; t >= 0; t--) {
            for (int64_t group = me.groups.from; group < me.groups.to; group++) {
                if (t + 1 < p.S) recur_back(p, w, me, t + 1, group);
                pointwise_backward<Cell>(p, w, me, t, group);
            }
            if (me.sharers > 1) barrier();
        }
        if (p.d_h) {
            for (int64_t group = me.groups.from; group < me.groups.to; group++) recur_back(p, w, me, 0, group);
            leave_units(p, me, w.dh, w.unit_row, p.d_h);
        }
        if (p.d_c) leave_units(p, me, w.dc, w.unit_row, p.d_c);
        if (p.d_age) leave_units(p, me, w.dage, w.unit_row, p.d_age);
        barrier();
        if (p.d_hh) {
            int64_t team = team_size(), column_parts = team > w.time_parts ? team / w.time_parts : 1;
            for (int64_t n = thread_number(); n < w.time_parts * column_parts; n += team)
                sum_gradients(p, w, n / column_parts, part(w.columns / WIDTH, n % column_parts, column_parts));
            barrier();
            write_gradients(p, w);
        }
        if (p.d_x) input_gradient(p, w);
    }
    if (p.d_power)
        for (int64_t u = 0; u < p.H; u++) {
            p.d_power[u] = 0.0f;
            for (int64_t k = 0; k < p.threads; k++) p.d_power[u] += w.dpower[k * w.units + u];
        }
}

// ---------------------------------------------------------------------------------------------- the interface

// Calls `use` with the cell that has the number `p.cell`; KINDS in kernel.py has the same order.
template <class Use>
static auto with_cell(const Problem& p, Use use) {
    switch (p.cell) {
        case 0: return use(LSTM{});
        case 1: return use(Refine{});
        case 2: return use(PowerLaw<true>{});
        default: return use(PowerLaw<false>{});
    }
}

// Number of floats that forward (and backward, if p.keep) need as a workspace. No pointer in `p` is read.
extern "C" int64_t timescales_workspace(const Problem* p) {
    Problem q = *p;
    q.workspace = nullptr;
    return with_cell(q, [&](auto cell) { return Layout(q, decltype(cell)::G, decltype(cell)::aged).floats; });
}
extern "C" void timescales_forward(const Problem* p) {
    with_cell(*p, [&](auto cell) { forward<decltype(cell)>(*p); });
}
// Overwrites what forward left in the workspace.
extern "C" void timescales_backward(const Problem* p) {
    with_cell(*p, [&](auto cell) { backward<decltype(cell)>(*p); });
}
