// The arguments of a call of the library, for both loops, and the share of them that a thread works on.

// Tensors are contiguous unless strides are given. A null pointer means that a tensor does not exist or is not wanted.
extern "C" struct Problem {
    int64_t threads, S, B, I, H, keep;  // keep: 1 if backward follows
    const float *x, *ih, *hh, *bias_ih, *bias_hh;  // (S, B, I), (rows, I), (rows, H), (rows), (rows)
    int64_t x_step, x_row;
    const float* const* state;    // initial state, (B, H) for each field
    const float* const* vectors;  // numbers per unit, (H) each
    const float* const* noise;    // (S, B, H) each
    const float* dt;              // (S, B)
    const uint8_t* mask;          // (S, B)
    const int64_t* order;         // (B): the index in the batch of the loop's row b; only with a mask, see fused.py
    const uint8_t* reset_after;   // (S, B): whether the state is reset to the initial one after a step
    const float* const* initial;  // that state, (B, H) for each field
    float* output;
    float* const* last;    // state after the last step
    float* const* states;  // the state after every step, (S, B, H) for each field but h; null if it is not wanted
    float* workspace;    // what backward needs to know, and scratch memory
    // backward: gradients of the results, then of the arguments
    const float* d_output;
    int64_t d_output_step, d_output_row;
    const float *const *d_last, *const *d_states;
    float *d_x, *d_ih, *d_hh, *d_bias_ih, *d_bias_hh;
    float *const *d_state, *const *d_vectors;
    float* d_dt;
    float* const* d_initial;  // zeros before the call: gradients are added

    // The workspace has the loop's order of rows, the tensors have the batch's.
    int64_t place(int64_t b) const { return order ? order[b] : b; }
    bool exists(int64_t t, int64_t b) const { return !mask || mask[t * B + place(b)]; }
    bool resets_after(int64_t t, int64_t b) const { return reset_after && reset_after[t * B + place(b)]; }
};

// h before step t, (H); t = S: after the last step.
static const float* h_before(const Problem& p, int64_t t, int64_t b) {
    if (t == 0) return p.state[0] + p.place(b) * p.H;
    if (p.resets_after(t - 1, b)) return p.initial[0] + p.place(b) * p.H;
    return p.output + ((t - 1) * p.B + p.place(b)) * p.H;
}

constexpr int length(int n) { return n > 0 ? n : 1; }  // of an array, which cannot be empty

// The layout of the workspace. Rows are an odd number of cache lines long: rows at distances of a power of two would
// share the same few places of the cache.
static int64_t odd_lines(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

// What both layouts begin with: the numbers that the workspace has so far.
struct Workspace {
    int64_t floats = 0;

    // Reserve the next n numbers. Return their place, or null if only the size of the workspace is asked for.
    float* take(const Problem& p, int64_t n) {
        float* place = p.workspace ? p.workspace + floats : nullptr;
        floats += ceil_div(n, LINE) * LINE;
        return place;
    }
};

// The rows of the batch and the groups of units of a thread. `sharers` threads have the same rows.
struct Share {
    Range rows, groups;
    int64_t sharer, sharers;
};

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
// Write the state after step t of one row and group of units to the results, and reset it if the call says so.
template <int FIELDS>
static INLINE void leave_step(const Problem& p, int64_t t, int64_t b, int64_t u, Vec* now) {
    int64_t row = (t * p.B + p.place(b)) * p.H + u;
    store_cut(p.output + row, now[0], p.H - u);
    for (int f = 1; f < FIELDS; f++)
        if (p.states[f]) store_cut(p.states[f] + row, now[f], p.H - u);
    if (p.resets_after(t, b))
        for (int f = 0; f < FIELDS; f++) now[f] = load_cut(p.initial[f] + p.place(b) * p.H + u, p.H - u);
}
// Backward: the gradient of the state after step t, from the gradient of the state that the next step read.
template <int FIELDS>
static INLINE void fetch_step(const Problem& p, int64_t t, int64_t b, int64_t u, Vec* d) {
    if (p.resets_after(t, b))
        for (int f = 0; f < FIELDS; f++) {
            if (float* sum = p.d_initial[f]) {
                sum += p.place(b) * p.H + u;
                store_cut(sum, load_cut(sum, p.H - u) + d[f], p.H - u);
            }
            d[f] = Vec{};
        }
    if (p.d_output)
        d[0] = d[0] + load_cut(p.d_output + t * p.d_output_step + p.place(b) * p.d_output_row + u, p.H - u);
    for (int f = 1; f < FIELDS; f++)
        if (p.d_states[f]) d[f] = d[f] + load_cut(p.d_states[f] + (t * p.B + p.place(b)) * p.H + u, p.H - u);
}
// The gradient of dt: sum over the threads. Each thread has S * B numbers in the order of the workspace.
static void add_up_dt(const Problem& p, const float* of_threads) {
    for (int64_t n = 0; n < p.S * p.B; n++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < p.threads; k++) sum += of_threads[k * p.S * p.B + n];
        p.d_dt[n / p.B * p.B + p.place(n % p.B)] = sum;
    }
}

// The gradients of the numbers per unit: sums over the threads. Each thread has (vectors, units), in `size` numbers.
static void add_up_vectors(const Problem& p, int vectors, int64_t units, const float* of_threads, int64_t size) {
    for (int v = 0; v < vectors; v++)
        for (int64_t u = 0; p.d_vectors[v] && u < p.H; u++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < p.threads; k++) sum += of_threads[k * size + v * units + u];
            p.d_vectors[v][u] = sum;
        }
}
