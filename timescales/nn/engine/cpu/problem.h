// The arguments of a call of the library, for both loops, and what a thread has of them.

// Tensors are contiguous unless strides are given. A null pointer: the tensor does not exist or is not wanted.
extern "C" struct Problem {
    int64_t threads, S, B, I, H, keep;  // keep: 1 if backward follows
    const float *x, *ih, *hh, *bias_ih, *bias_hh;  // (S, B, I), (rows, I), (rows, H), (rows), (rows)
    int64_t x_step, x_row;
    const float* const* state;    // initial state, (B, H) for each field
    const float* const* vectors;  // numbers per unit, (H) each
    const float* const* noise;    // (S, B, H) each
    const float* dt;              // (S, B)
    const uint8_t* mask;          // (S, B)
    const int64_t* order;         // (B): the index in the batch of the loop's row b; with a mask, see fused.py
    float* output;
    float* const* last;  // state after the last step
    float* workspace;    // what backward needs to know, and scratch memory
    // backward: gradients of the results, then of the arguments
    const float* d_output;
    int64_t d_output_step, d_output_row;
    const float* const* d_last;
    float *d_x, *d_ih, *d_hh, *d_bias_ih, *d_bias_hh;
    float *const *d_state, *const *d_vectors;
    float* d_dt;

    // The workspace has the loop's order of rows, the tensors have the batch's.
    int64_t place(int64_t b) const { return order ? order[b] : b; }
    bool exists(int64_t t, int64_t b) const { return !mask || mask[t * B + place(b)]; }
};

constexpr int length(int n) { return n > 0 ? n : 1; }  // of an array, which cannot be empty

// The layout of the workspace. Rows are an odd number of cache lines long: rows at distances of a power of two would
// share the same few places of the cache.
static int64_t odd_lines(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

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
// The gradient of dt: the sums over the threads, each of which has S * B numbers in the order of the workspace.
static void add_up_dt(const Problem& p, const float* of_threads) {
    for (int64_t n = 0; n < p.S * p.B; n++) {
        float sum = 0.0f;
        for (int64_t k = 0; k < p.threads; k++) sum += of_threads[k * p.S * p.B + n];
        p.d_dt[n / p.B * p.B + p.place(n % p.B)] = sum;
    }
}
