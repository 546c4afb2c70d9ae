// The time loop of a recurrent cell on the CPU: forward and exact backward, float32.
//
// The struct `Cell`, which is generated from `Cell.step` (emit_cpp.py), has the equations of one step; this file has
// the loops over time, and products.cpp the matrix products. CELL is the name of the file with the struct.
//
// A step is computed while its numbers are in the cache: for one group of units at a time, the product with the weights
// writes the pre-activations, and the pointwise equations follow. Before them some pre-activations are replaced by their
// activations (`Cell::is_activated`), which backward reads too. Backward does the same in reverse order, computes the
// other activations again, and overwrites the pre-activations with their gradients. Each thread has a slice of the batch
// for the whole sequence, so threads do not wait for each other. If the batch is small and the weights are large, the
// threads divide the units among them instead, with one barrier per step.
//
// Letters: S steps, B batch, I input, H hidden. The C interface is at the end. No other library is needed.

#include <vector>

#include "vectors.h"
#include "products.h"
#include "threads.h"
#include "problem.h"

namespace {  // libraries in one process would share the names, and with them the code, of one cell

#include CELL

// ---------------------------------------------------------------------------------------------- the cell's blocks
//
// A block is a gate's pre-activations, or a share of them: the first X_ONLY blocks have W_ih x + bias_ih, the next SUMS
// blocks the sum with W_hh h + bias_hh, the last H_ONLY blocks only the recurrent share. A step multiplies [x, 1, h] by
// the weights, so each block needs a contiguous part of it. The columns of the blocks are side by side in this order.
//
// A block is expanded if its gate has fewer rows than units, or if the step takes the cumax of its rows: the numbers of
// all units are then computed between the product and the equations. So are means over the units, as of a layer norm.

constexpr int BLOCKS = Cell::X_ONLY + Cell::SUMS + Cell::H_ONLY;
constexpr bool has_x(int block) { return block < Cell::X_ONLY + Cell::SUMS; }
constexpr bool has_h(int block) { return block >= Cell::X_ONLY; }
constexpr int divisor(int block) { return Cell::divisor(Cell::gate(block)); }
constexpr bool expanded(int block) { return Cell::is_row(block) || divisor(block) > 1; }
// Number of expanded blocks before this one.
constexpr int place_among_expanded(int block) {
    return block == 0 ? 0 : place_among_expanded(block - 1) + (expanded(block - 1) ? 1 : 0);
}
constexpr int EXPANDED = place_among_expanded(BLOCKS);
constexpr bool BY_ROW = EXPANDED || Cell::MEANS;  // whether the equations need something of all units
constexpr int NUMBERS = length(Cell::VECTORS + Cell::MEANS + Cell::KEPT);  // vectors, and numbers of the means' stages

// ---------------------------------------------------------------------------------------------- the workspace

constexpr int64_t CHUNK = 96;  // rows of dx, or of projected x, computed at a time

// With few rows and many inputs, loading the weights takes most of the time. Then the inputs' share of the
// pre-activations is computed in advance for a window of steps, so that a load of the weights serves many rows.
bool projects_ahead(const Problem& p) { return p.I >= 32 && p.B < 32 * p.threads; }

struct Layout : Workspace {
    int64_t groups, units;               // units: H rounded up to whole groups
    int64_t height[BLOCKS];              // rows of the block's gate in the weights
    int64_t row[BLOCKS];                 // the first of them
    int64_t column[BLOCKS + 1];          // first column of the block; the widths are rounded up to whole groups
    int64_t columns, x_columns;          // all columns; those of blocks with x, which are the first
    int64_t x_rows, h_rows;              // rows of the weights of x, and of h, in all blocks together
    int64_t in, pad;                     // length of [x, 1, h]; numbers before it, so that h begins at a cache line
    int64_t act_row, unit_row, in_row;
    int64_t window, slots;        // steps of a window; steps whose pre-activations are stored at a time
    int64_t act_step, unit_step;  // unit_step: 0 if only the current step is kept
    int64_t time_parts;           // parts of the weight gradients' sum over S and B
    // Kept from forward to backward: (slots, B, columns), and for each field but h (S + 1, B, units).
    float *act, *state[Cell::FIELDS];
    float* means;  // (steps kept, B, MEANS)
    // Forward: two of (B, pad + in); weights in tiles; see `project_ahead`; see `expand`.
    float *inputs, *weights, *ahead, *wide;
    // Backward: weights in tiles; (B, units) for each field; (threads, VECTORS, units); (threads, S, B); see
    // `sum_gradients`, `input_gradient`.
    float *weights_back = nullptr, *dstate[Cell::FIELDS] = {}, *dvectors = nullptr, *ddt = nullptr;
    float *gradient = nullptr, *left = nullptr, *right = nullptr, *dx = nullptr;

    Layout(const Problem& p) {
        groups = ceil_div(p.H, WIDTH), units = groups * WIDTH, columns = x_rows = h_rows = 0;
        for (int k = 0; k < BLOCKS; k++) {
            height[k] = p.H / divisor(k), row[k] = 0;
            for (int gate = 0; gate < Cell::gate(k); gate++) row[k] += p.H / Cell::divisor(gate);
            column[k] = columns, columns += ceil_div(height[k], WIDTH) * WIDTH;
            x_rows += has_x(k) ? height[k] : 0, h_rows += has_h(k) ? height[k] : 0;
        }
        column[BLOCKS] = columns, x_columns = column[Cell::X_ONLY + Cell::SUMS];
        in = p.I + 1 + p.H, pad = ceil_div(p.I + 1, LINE) * LINE - (p.I + 1);
        act_row = odd_lines(columns), unit_row = odd_lines(units), in_row = odd_lines(pad + in);
        act_step = p.B * act_row, unit_step = p.keep ? p.B * unit_row : 0;
        window = projects_ahead(p) ? p.threads * CHUNK / p.B : 1;
        slots = p.keep ? p.S : window;
        for (time_parts = p.threads; time_parts > 4 && time_parts % 2 == 0;) time_parts /= 2;
        int64_t states = (p.keep ? p.S : 1) + 1;
        act = take(p, slots * p.B * act_row);
        for (int f = 1; f < Cell::FIELDS; f++) state[f] = take(p, states * p.B * unit_row);
        means = take(p, (p.keep ? p.S : 1) * p.B * Cell::MEANS);
        int64_t kept = floats;
        inputs = take(p, 2 * p.B * in_row);
        weights = take(p, columns * in);
        ahead = take(p, projects_ahead(p) ? p.threads * CHUNK * ahead_row(p) : 0);
        wide = take(p, p.threads * wide_size());
        int64_t forward = floats;
        floats = kept;  // backward's scratch memory is where forward's was
        if (p.keep) {
            weights_back = take(p, h_rows * units + x_rows * ceil_div(p.I, WIDTH) * WIDTH);
            for (float*& d : dstate) d = take(p, p.B * unit_row);
            dvectors = take(p, p.threads * Cell::VECTORS * units);
            ddt = take(p, Cell::TIMED ? p.threads * p.S * p.B : 0);
            gradient = take(p, time_parts * columns * in);
            left = take(p, p.threads * left_size()), right = take(p, p.threads * BLOCK * WIDTH);
            dx = take(p, p.threads * CHUNK * dx_row(p));
            wide = take(p, p.threads * wide_size());
        }
        if (forward > floats) floats = forward;
    }
    static int64_t ahead_row(const Problem& p) { return odd_lines(p.I + 1); }
    static int64_t dx_row(const Problem& p) { return odd_lines(ceil_div(p.I, WIDTH) * WIDTH); }
    int64_t left_size() const { return ceil_div(in, ROWS) * ROWS * BLOCK + in_row + LINE; }  // tiles, one line
    int64_t wide_size() const { return (2 * EXPANDED + Cell::KEPT) * units; }
    float* kept(float* wide) const { return wide + 2 * EXPANDED * units; }  // see `load_kept`
    int64_t panels(int k) const { return (column[k + 1] - column[k]) / WIDTH; }  // groups of columns of a block
    int block_of(int64_t col) const {
        int k = 0;
        while (col >= column[k + 1]) k++;
        return k;
    }
    int64_t rows_from(int64_t col) const {  // of the block's gate, those of this column and of the columns after it
        int k = block_of(col);
        return column[k] + height[k] - col;
    }
    // The rows of block k and of those after it, before `end`, that have no empty column between them. k becomes the next.
    int64_t rows_together(int& k, int end) const {
        int first = k;
        int64_t rows = height[k++];
        while (k < end && column[k] == column[first] + rows) rows += height[k++];
        return rows;
    }
    // The part of [x, 1, h] that a block needs.
    Range inputs_of(const Problem& p, int k) const { return {has_x(k) ? 0 : p.I, has_h(k) ? in : p.I + 1}; }
};

// ---------------------------------------------------------------------------------------------- threads

// Threads share the batch, the units, or both: whichever is cheapest by a rough count of cycles per step. Threads that
// share units synchronise at every step. A barrier costs little if every thread has a core, but milliseconds if other
// processes run there. So units are shared only if a step is long: few rows and many units. Expanded blocks and means
// need all units.
Share share(const Problem& p, const Layout& w) {
    int64_t team = team_size(), best = 1;
    double least = 1e300;
    for (int64_t sharers = 1; sharers <= team && sharers <= w.groups; sharers++) {
        if (team % sharers || (BY_ROW && sharers > 1)) continue;
        double rows = ceil_div(p.B, team / sharers), weights = ceil_div(w.groups, sharers) * WIDTH * BLOCKS * w.in;
        double multiply = weights / WIDTH * (rows > 4 ? rows : 4);  // a tile of few rows takes as long as one of four
        double bytes = 4 * weights, fetch = bytes / (bytes > 262144 ? 8 : 32);  // from the second-level cache or memory
        double cost = (multiply + fetch) * (sharers > 1 ? 1.2 : 1.0) + (sharers > 1 ? 1e5 : 0.0);
        if (cost < least) least = cost, best = sharers;
    }
    int64_t slices = team / best, me = thread_number();
    return {part(p.B, me / best, slices), part(w.groups, me % best, best), me % best, best};
}

// ---------------------------------------------------------------------------------------------- expanded blocks

// Compute the numbers of all units of one row, `wide` (EXPANDED, units), from its pre-activations. The softmax of a cumax
// overwrites them; with `has_softmax` it has done so already.
[[maybe_unused]] void expand(const Layout& w, float* act, float* wide, bool has_softmax) {
    for (int k = 0; k < BLOCKS; k++) {
        if (!expanded(k)) continue;
        float *from = act + w.column[k], *to = wide + place_among_expanded(k) * w.units;
        int64_t n = w.height[k];
        if (Cell::is_row(k) && !has_softmax) {
            float largest = from[0], sum = 0.0f;
            for (int64_t r = 1; r < n; r++) largest = from[r] > largest ? from[r] : largest;
            for (int64_t r = 0; r < n; r += WIDTH) {
                Vec e = load_cut(from + r, n - r) - largest;
                e = cut(finite_exp(e), n - r);
                store(from + r, e);
                sum += total(e);
            }
            for (int64_t r = 0; r < n; r += WIDTH) store(from + r, load(from + r) / sum);
        }
        float value = 0.0f;
        for (int64_t r = 0; r < n; r++) {
            value = Cell::is_row(k) ? value + from[r] : from[r];
            float clamped = Cell::is_row(k) && value > 1.0f ? 1.0f : value;
            for (int64_t u = r * divisor(k); u < (r + 1) * divisor(k); u++) to[u] = clamped;
        }
    }
}

// Backward: the gradients of the row's pre-activations from those of all units.
[[maybe_unused]] void contract(const Layout& w, float* act, const float* wide) {
    for (int k = 0; k < BLOCKS; k++) {
        if (!expanded(k)) continue;
        float* z = act + w.column[k];
        const float* d = wide + place_among_expanded(k) * w.units;
        int64_t n = w.height[k];
        float dot = 0.0f, sum = 0.0f;
        auto of_row = [&](int64_t r) {
            float total = 0.0f;
            for (int64_t u = r * divisor(k); u < (r + 1) * divisor(k); u++) total += d[u];
            return total;
        };
        if (Cell::is_row(k)) {  // d softmax = the sum of d over this and all later rows; z has the softmax
            for (int64_t r = n - 1; r >= 0; r--) sum += of_row(r), dot += z[r] * sum;
            sum = 0.0f;
            for (int64_t r = n - 1; r >= 0; r--) sum += of_row(r), z[r] *= sum - dot;
        } else {
            for (int64_t r = 0; r < n; r++) z[r] = of_row(r);
        }
        for (int64_t r = 0; r < n; r += WIDTH) store(z + r, flushed(cut(load(z + r), n - r)));
    }
}

// ---------------------------------------------------------------------------------------------- forward

// Transpose a (rows, n) matrix into a tile, (n, WIDTH), with zeros for rows that do not exist. A cache line of each row at
// a time: columns of a large matrix share few places of the cache.
void pack_rows(const float* from, int64_t rows, int64_t n, float* to) {
    if (rows < WIDTH) std::memset(to, 0, n * WIDTH * sizeof(float));
    for (int64_t first = 0; first < n; first += LINE) {
        int64_t last = first + LINE < n ? first + LINE : n;
        for (int64_t l = 0; l < rows; l++)
            for (int64_t i = first; i < last; i++) to[i * WIDTH + l] = from[l * n + i];
    }
}

// Weights in tiles: for each group of columns, (in, WIDTH); columns beyond a block's height are zero.
void pack_weights(const Problem& p, const Layout& w) {
    Range range = part(w.columns / WIDTH, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int k = w.block_of(n * WIDTH);
        int64_t first = n * WIDTH - w.column[k];
        float* to = w.weights + n * w.in * WIDTH;
        int64_t rows = w.height[k] - first < WIDTH ? w.height[k] - first : WIDTH;
        if (has_x(k)) pack_rows(p.ih + (w.row[k] + first) * p.I, rows, p.I, to);
        if (has_h(k)) pack_rows(p.hh + (w.row[k] + first) * p.H, rows, p.H, to + (p.I + 1) * WIDTH);
        for (int64_t l = 0; l < WIDTH; l++) {
            bool exists = first + l < w.height[k];
            int64_t row = w.row[k] + first + l;
            float bias = has_x(k) && exists ? p.bias_ih[row] : 0.0f;
            if (has_h(k) && exists && p.bias_hh) bias += p.bias_hh[row];
            to[p.I * WIDTH + l] = bias;
        }
    }
}

// The n-th group of units at step t. Every other step takes them in reverse order, and so begins with the weights that
// the step before read last: those are in the cache, even if all weights are not.
// The first group of the next step is the last one of this.
int64_t turn(const Range& groups, int64_t t, int64_t n) {
    if (n == groups.size()) n--;
    return t % 2 ? groups.to - 1 - n : groups.from + n;
}

// The rows [x, 1, h] of step t.
float* inputs(const Problem& p, const Layout& w, int64_t t) { return w.inputs + t % 2 * p.B * w.in_row + w.pad; }

void put_input(const Problem& p, const Layout& w, int64_t t, Range rows) {
    float* in = inputs(p, w, t);
    for (int64_t b = rows.from; b < rows.to; b++) {
        std::memcpy(in + b * w.in_row, p.x + t * p.x_step + p.place(b) * p.x_row, p.I * sizeof(float));
        in[b * w.in_row + p.I] = 1.0f;
    }
}

// Number of a thread's rows in the products of a step: all up to the last one that exists.
int64_t taking_part(const Problem& p, int64_t t, Range rows) {
    int64_t last = rows.to;
    while (last > rows.from && !p.exists(t, last - 1)) last--;
    return last - rows.from;
}

// The pre-activations of one group of units at step t; `next`: the group after it. `ahead`: the inputs' share is there
// already.
void project(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group, int64_t next, bool ahead) {
    const float* in = inputs(p, w, t) + me.rows.from * w.in_row;
    int64_t rows = taking_part(p, t, me.rows);
    auto range_of = [&](int k) {
        Range range = w.inputs_of(p, k);
        if (ahead && has_x(k)) range.from = p.I + 1;
        return range;
    };
    auto weights = [&](int k, int64_t of) -> const float* {  // of a block and group, or null if it has no part here
        Range range = range_of(k);
        if (of >= w.panels(k) || range.size() <= 0) return nullptr;
        return w.weights + (w.column[k] + of * WIDTH) * w.in + range.from * WIDTH;
    };
    for (int k = 0; k < BLOCKS; k++) {
        const float* from = weights(k, group);
        if (!from) continue;
        Range range = range_of(k);
        float* z = w.act + t % w.slots * w.act_step + me.rows.from * w.act_row + w.column[k] + group * WIDTH;
        product(rows, range.size(), in + range.from, w.in_row, from, z, w.act_row, ahead && has_x(k),
                k + 1 < BLOCKS ? weights(k + 1, group) : weights(0, next), w.height[k] - group * WIDTH);
    }
}

// Replace the pre-activations of one group of units at step t by their activations, from `block` on. Each activation is a
// short chain of operations, so that the processor works on several rows at once; within the equations it would not.
template <int block = 0>
void activate(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group) {
    if constexpr (block < BLOCKS) {
        if constexpr (Cell::is_activated(block)) {
            float* z = w.act + t % w.slots * w.act_step + me.rows.from * w.act_row + w.column[block] + group * WIDTH;
            for (int64_t b = taking_part(p, t, me.rows), row = w.act_row; b > 0; b--, z += row)
                store(z, Cell::activation<block>(load(z)));
        }
        activate<block + 1>(p, w, me, t, group);
    }
}

// The vectors' numbers of one group of units.
INLINE void load_vectors(const Problem& p, int64_t u, Vec* vectors) {
    for (int v = 0; v < Cell::VECTORS; v++) vectors[v] = load_cut(p.vectors[v] + u, p.H - u);
}

// The numbers that the equations read at one step of one row and group of units.
struct Read {
    Vec z[BLOCKS], state[Cell::FIELDS], noise[length(Cell::NOISES)], dt;
};
INLINE void read_step(const Problem& p, const Layout& w, int64_t t, int64_t b, int64_t u, const float* act,
                      const float* wide, Read& r) {
    for (int k = 0; k < BLOCKS; k++)
        r.z[k] = load(expanded(k) ? wide + place_among_expanded(k) * w.units + u : act + w.column[k] + u);
    for (int n = 0; n < Cell::NOISES; n++)
        r.noise[n] = load_cut(p.noise[n] + (t * p.B + p.place(b)) * p.H + u, p.H - u);
    if (Cell::TIMED) r.dt = spread_vec(p.dt[t * p.B + p.place(b)]);
}

// The means of one row.
float* means_of(const Problem& p, const Layout& w, int64_t t, int64_t b) {
    return w.means + ((p.keep ? t : 0) * p.B + b) * Cell::MEANS;
}
// What the stages before `stage` stored after the vectors: means, and each unit's numbers that were computed for them.
template <int stage>
INLINE void load_means(const float* means, Vec* vectors) {
    for (int k = 0; k < Cell::means_until(stage); k++) vectors[Cell::VECTORS + k] = spread_vec(means[k]);
}
template <int stage>
INLINE void load_kept(const Layout& w, float* wide, int64_t u, Vec* vectors) {
    for (int k = 0; k < Cell::kept_until(stage); k++)
        vectors[Cell::VECTORS + Cell::MEANS + k] = load(w.kept(wide) + k * w.units + u);
}

// The means of the stages `stage` ... `end` - 1, each of which reads those before. In backward `dstate` has the gradient
// of the state after the step.
template <class Step, int stage, int end>
void row_means(const Problem& p, const Layout& w, int64_t t, int64_t b, const float* act, float* wide) {
    if constexpr (stage < end) {
        constexpr int first = Step::means_until(stage), count = Step::means_until(stage + 1) - first;
        float* means = means_of(p, w, t, b);
        Vec sums[count] = {}, vectors[NUMBERS];
        load_means<stage>(means, vectors);
        for (int64_t u = 0; u < w.units; u += WIDTH) {
            Vec d[Step::FIELDS], summands[count], kept[length(Step::KEPT)];
            Read r;
            load_vectors(p, u, vectors);
            load_kept<stage>(w, wide, u, vectors);
            if (Step::READS_H) r.state[0] = load_cut(h_before(p, t, b) + u, p.H - u);
            for (int f = 1; f < Step::FIELDS; f++) r.state[f] = load(w.state[f] + t * w.unit_step + b * w.unit_row + u);
            for (int f = 0; f < Step::FIELDS && stage >= Step::FORWARD_STAGES; f++)
                d[f] = load(w.dstate[f] + b * w.unit_row + u);
            read_step(p, w, t, b, u, act, wide, r);
            Step::template summands<stage>(r.z, r.state, vectors, r.noise, r.dt, d, summands, kept);
            for (int k = Step::kept_until(stage); k < Step::kept_until(stage + 1); k++)
                store(w.kept(wide) + k * w.units + u, kept[k]);
            for (int k = 0; k < count; k++) sums[k] = sums[k] + cut(summands[k], p.H - u);
        }
        for (int k = 0; k < count; k++) means[first + k] = total(sums[k]) / p.H;
        row_means<Step, stage + 1, end>(p, w, t, b, act, wide);
    }
}

INLINE void unit_forward(const Problem& p, const Layout& w, int64_t t, int64_t b, int64_t u, const Vec* vectors,
                         const float* wide) {
    int64_t at = b * w.unit_row + u;
    const float* h = inputs(p, w, t) + b * w.in_row + p.I + 1 + u;
    Read r;
    Vec now[Cell::FIELDS];
    for (int f = 1; f < Cell::FIELDS; f++) r.state[f] = load(w.state[f] + t * w.unit_step + at);
    if (p.exists(t, b)) {
        if (Cell::READS_H) r.state[0] = load_cut(h, p.H - u);
        read_step(p, w, t, b, u, w.act + t % w.slots * w.act_step + b * w.act_row, wide, r);
        Cell::forward(r.z, r.state, vectors, r.noise, r.dt, now);
    } else {  // a step that does not exist does not change the state
        now[0] = load_cut(h, p.H - u);
        for (int f = 1; f < Cell::FIELDS; f++) now[f] = r.state[f];
    }
    leave_step<Cell::FIELDS>(p, t, b, u, now);
    for (int f = 1; f < Cell::FIELDS; f++) store(w.state[f] + (t + 1) * w.unit_step + at, now[f]);
    store_cut(inputs(p, w, t + 1) + b * w.in_row + p.I + 1 + u, now[0], p.H - u);
}

// All units of a thread at step t, after the products. The problem and the layout are copies: otherwise every store of
// numbers might change them, as far as the compiler knows, and they would be read again for each row.
void pointwise_forward(const Problem p, const Layout w, const Share me, int64_t t, int64_t group) {
    Vec vectors[length(Cell::VECTORS)];
    load_vectors(p, group * WIDTH, vectors);
    for (int64_t b = me.rows.from; b < me.rows.to; b++) unit_forward(p, w, t, b, group * WIDTH, vectors, nullptr);
}
[[maybe_unused]] void rows_forward(const Problem p, const Layout w, const Share me, int64_t t) {
    float* wide = w.wide + thread_number() * w.wide_size();
    Vec vectors[NUMBERS];
    for (int64_t b = me.rows.from; b < me.rows.to; b++) {
        if (p.exists(t, b)) {
            float* act = w.act + t % w.slots * w.act_step + b * w.act_row;
            expand(w, act, wide, false);
            row_means<Cell, 0, Cell::FORWARD_STAGES>(p, w, t, b, act, wide);
            load_means<Cell::FORWARD_STAGES>(means_of(p, w, t, b), vectors);
        }
        for (int64_t group = 0; group < w.groups; group++) {
            load_vectors(p, group * WIDTH, vectors);
            load_kept<Cell::FORWARD_STAGES>(w, wide, group * WIDTH, vectors);
            unit_forward(p, w, t, b, group * WIDTH, vectors, wide);
        }
    }
}

// The inputs' share of the pre-activations of a window of steps, `first` and those after it.
void project_ahead(const Problem& p, const Layout& w, int64_t first) {
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
        for (int64_t column = 0; column < w.x_columns; column += WIDTH)
            product(n, p.I + 1, in, row, w.weights + column * w.in, act + from * w.act_row + column, w.act_row, false,
                    w.weights + (column + WIDTH) * w.in, w.rows_from(column));
    }
}

void forward(const Problem& p) {
    bool ahead = projects_ahead(p);
    Layout w(p);
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w);
        Range my_inputs = part(me.rows.size(), me.sharer, me.sharers);
        my_inputs = {me.rows.from + my_inputs.from, me.rows.from + my_inputs.to};
        pack_weights(p, w);
        fetch_units(p, me, p.state[0], inputs(p, w, 0) + p.I + 1, w.in_row, false);
        for (int f = 1; f < Cell::FIELDS; f++) fetch_units(p, me, p.state[f], w.state[f], w.unit_row, true);
        put_input(p, w, 0, my_inputs);
        for (int64_t t = 0; t < p.S; t++) {
            if (t == 0 || (ahead && t % w.window == 0)) barrier();
            if (ahead && t % w.window == 0) {
                project_ahead(p, w, t);
                barrier();
            }
            for (int64_t n = 0; n < me.groups.size(); n++) {
                int64_t group = turn(me.groups, t, n);
                project(p, w, me, t, group, turn(me.groups, t, n + 1), ahead);
                activate(p, w, me, t, group);
                if constexpr (!BY_ROW) pointwise_forward(p, w, me, t, group);
            }
            if constexpr (BY_ROW) rows_forward(p, w, me, t);
            if (t + 1 < p.S) put_input(p, w, t + 1, my_inputs);
            if (me.sharers > 1) barrier();
        }
        leave_units(p, me, inputs(p, w, p.S) + p.I + 1, w.in_row, p.last[0]);
        for (int f = 1; f < Cell::FIELDS; f++)
            leave_units(p, me, w.state[f] + p.S * w.unit_step, w.unit_row, p.last[f]);
    }
}

// ---------------------------------------------------------------------------------------------- backward

// weights_back: for each group of units, the rows of hh in a tile (rows, WIDTH), block after block; then ih in the same way
// for groups of inputs. The gradients of the pre-activations are multiplied by them.
void pack_weights_back(const Problem& p, const Layout& w) {
    int64_t tiles = w.groups + (p.d_x ? ceil_div(p.I, WIDTH) : 0);
    Range range = part(tiles, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        bool recurrent = n < w.groups;
        const float* from = recurrent ? p.hh : p.ih;
        int64_t length = recurrent ? p.H : p.I, first = (recurrent ? n : n - w.groups) * WIDTH;
        float* to = w.weights_back + (recurrent ? n * w.h_rows : w.groups * w.h_rows + (n - w.groups) * w.x_rows) * WIDTH;
        for (int k = 0; k < BLOCKS; k++) {
            if (!(recurrent ? has_h(k) : has_x(k))) continue;
            for (int64_t row = w.row[k]; row < w.row[k] + w.height[k]; row++, to += WIDTH)
                for (int64_t l = 0; l < WIDTH; l++) to[l] = first + l < length ? from[row * length + first + l] : 0.0f;
        }
    }
}

// One row and group of units. `vectors`: their numbers; `sums`: their gradients, added to. `read`: the row's gradients
// are read although the step does not exist.
INLINE void unit_backward(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t b, int64_t u,
                          const Vec* vectors, Vec* sums, float* wide, bool read) {
    int64_t at = b * w.unit_row + u;
    float* act = w.act + t * w.act_step + b * w.act_row;
    if (t > 0 && p.exists(t - 1, b)) {
        for (int k = 0; k < BLOCKS; k++)
            if (!expanded(k)) soon(act - w.act_step + w.column[k] + u);
        for (int f = 1; f < Cell::FIELDS; f++) soon(w.state[f] + (t - 1) * w.unit_step + at);
        if (Cell::READS_H) soon(h_before(p, t - 1, b) + u);
        if (p.d_output) soon(p.d_output + (t - 1) * p.d_output_step + p.place(b) * p.d_output_row + u);
    }
    Vec d[Cell::FIELDS], dz[BLOCKS], dstate[Cell::FIELDS], dvectors[length(Cell::VECTORS)], ddt{};
    for (int f = 0; f < Cell::FIELDS; f++) d[f] = load(w.dstate[f] + at);
    if constexpr (!Cell::MEANS) fetch_step<Cell::FIELDS>(p, t, b, u, d);
    if (!p.exists(t, b)) {  // the state did not change: its gradient passes through
        for (int f = 0; f < Cell::FIELDS; f++) store(w.dstate[f] + at, d[f]);
        if (read)
            for (int k = 0; k < BLOCKS; k++)
                if (u < w.panels(k) * WIDTH) store(act + w.column[k] + u, Vec{});
        return;
    }
    Read r;
    for (int f = 1; f < Cell::FIELDS; f++) r.state[f] = load(w.state[f] + t * w.unit_step + at);
    if (Cell::READS_H) r.state[0] = load_cut(h_before(p, t, b) + u, p.H - u);
    read_step(p, w, t, b, u, act, wide, r);
    Cell::backward(r.z, r.state, vectors, r.noise, r.dt, d, dz, dstate, dvectors, ddt);
    // Columns of units beyond H may have any numbers, also NaN: no product reads them.
    float* wide_gradients = wide + EXPANDED * w.units;
    for (int k = 0; k < BLOCKS; k++) {
        if (expanded(k)) store(wide_gradients + place_among_expanded(k) * w.units + u, dz[k]);
        else store(act + w.column[k] + u, flushed(dz[k]));
    }
    // The products with the weights are added to the gradient of h.
    for (int f = 0; f < Cell::FIELDS; f++) store(w.dstate[f] + at, dstate[f]);
    for (int v = 0; v < Cell::VECTORS; v++) sums[v] = sums[v] + dvectors[v];
    if (Cell::TIMED && p.d_dt) w.ddt[(me.sharer * p.S + t) * p.B + b] += total(cut(ddt, p.H - u));
}

void load_sums(const Layout& w, int64_t u, Vec* sums, bool back) {
    for (int v = 0; v < Cell::VECTORS; v++) {
        float* sum = w.dvectors + (thread_number() * Cell::VECTORS + v) * w.units + u;
        if (back) store(sum, sums[v]);
        else sums[v] = load(sum);
    }
}

void pointwise_backward(const Problem p, const Layout w, const Share me, int64_t t, int64_t group) {
    Vec vectors[length(Cell::VECTORS)], sums[length(Cell::VECTORS)];
    load_vectors(p, group * WIDTH, vectors);
    load_sums(w, group * WIDTH, sums, false);
    int64_t read = p.d_x ? me.rows.to : me.rows.from + taking_part(p, t, me.rows);  // rows whose gradients are
    for (int64_t b = me.rows.from; b < me.rows.to; b++)
        unit_backward(p, w, me, t, b, group * WIDTH, vectors, sums, nullptr, b < read);
    load_sums(w, group * WIDTH, sums, true);
}
[[maybe_unused]] void rows_backward(const Problem p, const Layout w, const Share me, int64_t t) {
    float* wide = w.wide + thread_number() * w.wide_size();
    Vec vectors[NUMBERS], sums[length(Cell::VECTORS)];
    int64_t read = p.d_x ? me.rows.to : me.rows.from + taking_part(p, t, me.rows);
    for (int64_t b = me.rows.from; b < me.rows.to; b++) {
        float* act = w.act + t * w.act_step + b * w.act_row;
        for (int64_t u = 0; Cell::MEANS && u < w.units; u += WIDTH) {  // means need the gradients of all units
            Vec d[Cell::FIELDS];
            for (int f = 0; f < Cell::FIELDS; f++) d[f] = load(w.dstate[f] + b * w.unit_row + u);
            fetch_step<Cell::FIELDS>(p, t, b, u, d);
            for (int f = 0; f < Cell::FIELDS; f++) store(w.dstate[f] + b * w.unit_row + u, d[f]);
        }
        if (p.exists(t, b)) {
            expand(w, act, wide, true);
            row_means<Cell, Cell::FORWARD_STAGES, Cell::STAGES>(p, w, t, b, act, wide);
            load_means<Cell::STAGES>(means_of(p, w, t, b), vectors);
        }
        for (int64_t group = 0; group < w.groups; group++) {
            load_vectors(p, group * WIDTH, vectors);
            load_kept<Cell::STAGES>(w, wide, group * WIDTH, vectors);
            load_sums(w, group * WIDTH, sums, false);
            unit_backward(p, w, me, t, b, group * WIDTH, vectors, sums, wide, b < read);
            load_sums(w, group * WIDTH, sums, true);
        }
        if (p.exists(t, b)) contract(w, act, wide + EXPANDED * w.units);
    }
}

// dh += dz_t U for one group of units; `next`: the group after it.
void recur_back(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t group, int64_t next) {
    const float *weights = w.weights_back + group * w.h_rows * WIDTH, *end = weights + w.h_rows * WIDTH;
    for (int k = Cell::X_ONLY, first = k; k < BLOCKS; first = k) {
        int64_t together = w.rows_together(k, BLOCKS);
        const float* later = weights + together * WIDTH;
        product(taking_part(p, t, me.rows), together,
                w.act + t * w.act_step + me.rows.from * w.act_row + w.column[first], w.act_row, weights,
                w.dstate[0] + me.rows.from * w.unit_row + group * WIDTH, w.unit_row, true,
                later < end ? later : w.weights_back + next * w.h_rows * WIDTH, p.H - group * WIDTH);
        weights = later;
    }
}

// gradient = sum over steps and batch of [x, 1, h_before]^T dz: the gradients of ih, bias and hh at once. For each group
// of columns (in, WIDTH), so that a tile's sums are contiguous.
// The rows that exist and the columns are divided among the threads; each part of the rows has a separate sum.
void sum_gradients(const Problem& p, const Layout& w, int64_t time_part, Range panels) {
    float *left = w.left + thread_number() * w.left_size(), *right = w.right + thread_number() * BLOCK * WIDTH;
    float* line = left + w.left_size() - w.in_row - LINE;
    float* gradient = w.gradient + time_part * w.columns * w.in;
    int64_t existing = 0, t = 0, b = 0, row[BLOCK];  // (t, b) goes over all rows; `row`: the existing ones of a block
    auto walk = [&] {
        if (++b == p.B) b = 0, t++;
    };
    for (; t < p.S; walk()) existing += p.exists(t, b);
    Range range = part(existing, time_part, w.time_parts);
    t = b = 0;
    for (int64_t before = 0; before < range.from; walk()) before += p.exists(t, b);
    int64_t tiles = ceil_div(w.in, ROWS), blocks = ceil_div(range.size(), BLOCK);
    std::vector<int64_t> first(tiles);  // row of [x, 1, h_before] of each tile
    for (int64_t m = 0; m < tiles; m++) first[m] = part(w.in, m, tiles).from;
    for (int64_t n = 0; n < blocks || n == 0; n++) {
        Range block = blocks ? part(range.size(), n, blocks) : Range{0, 0};
        for (int64_t k = 0; k < block.size(); k++, walk()) {  // a row of [x, 1, h_before], cut into the tiles' rows
            while (!p.exists(t, b)) walk();
            row[k] = t * p.B + b;
            std::memcpy(line, p.x + t * p.x_step + p.place(b) * p.x_row, p.I * sizeof(float));
            line[p.I] = 1.0f;
            std::memcpy(line + p.I + 1, h_before(p, t, b), p.H * sizeof(float));
            for (int64_t m = 0; m < tiles; m++)  // ROWS numbers each; the last ones of a short tile are not read
                std::memcpy(left + (m * block.size() + k) * ROWS, line + first[m], ROWS * sizeof(float));
        }
        for (int64_t j = panels.from; j < panels.to; j++) {
            Range needed = w.inputs_of(p, w.block_of(j * WIDTH));
            for (int64_t k = 0; k < block.size(); k++) {
                if (j == panels.from && k + 16 < block.size()) soon(w.act + row[k + 16] * w.act_row + j * WIDTH);
                std::memcpy(right + k * WIDTH, w.act + row[k] * w.act_row + j * WIDTH, WIDTH * sizeof(float));
            }
            for (int64_t m = 0; m < tiles; m++) {
                Range r = part(w.in, m, tiles);
                if (r.to <= needed.from || r.from >= needed.to) continue;
                Range later = part(block.size(), m, tiles);  // of the columns after these
                for (int64_t k = later.from; k < later.to; k++) soon(w.act + row[k] * w.act_row + (j + 1) * WIDTH);
                float* sums = gradient + (j * w.in + r.from) * WIDTH;  // those of the next tiles are fetched
                product_of_packed(r.size(), block.size(), left + m * block.size() * ROWS, right, sums, n > 0,
                                  sums + r.size() * WIDTH, w.rows_from(j * WIDTH));
            }
        }
    }
}

// Add the parts and transpose them: column by column to the rows of ih, bias and hh.
void write_gradients(const Problem& p, const Layout& w) {
    Range range = part(w.columns / WIDTH, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int k = w.block_of(n * WIDTH);
        int64_t first = n * WIDTH - w.column[k];
        Range needed = w.inputs_of(p, k);
        int64_t rows = w.height[k] - first < WIDTH ? w.height[k] - first : WIDTH;
        for (int64_t from = needed.from; from < needed.to; from += LINE)  // a cache line of each row at a time
            for (int64_t l = 0; l < rows; l++)
                for (int64_t i = from; i < from + LINE && i < needed.to; i++) {
                    float sum = 0.0f;
                    for (int64_t m = 0; m < w.time_parts; m++)
                        sum += w.gradient[(m * w.columns + n * WIDTH) * w.in + i * WIDTH + l];
                    int64_t row = w.row[k] + first + l;
                    if (i < p.I) p.d_ih[row * p.I + i] = sum;
                    else if (i > p.I) p.d_hh[row * p.H + i - p.I - 1] = sum;
                    else {
                        if (has_x(k)) p.d_bias_ih[row] = sum;
                        if (has_h(k) && p.d_bias_hh) p.d_bias_hh[row] = sum;
                    }
                }
    }
}

// dx = dz W for all steps at once.
void input_gradient(const Problem& p, const Layout& w) {
    int64_t row = Layout::dx_row(p), panels = ceil_div(p.I, WIDTH), rows = p.S * p.B;
    const float* weights = w.weights_back + w.groups * w.h_rows * WIDTH;
    float* dx = w.dx + thread_number() * CHUNK * row;
    Range range = part(rows, thread_number(), team_size());
    for (int64_t from = range.from; from < range.to; from += CHUNK) {
        int64_t n = range.to - from < CHUNK ? range.to - from : CHUNK;
        for (int64_t j = 0; j < panels; j++) {
            const float* tile = weights + j * w.x_rows * WIDTH;
            for (int k = 0, first = 0, end = Cell::X_ONLY + Cell::SUMS; k < end; first = k) {
                int64_t together = w.rows_together(k, end);
                product(n, together, w.act + from * w.act_row + w.column[first], w.act_row, tile, dx + j * WIDTH, row,
                        first > 0, nullptr, p.I - j * WIDTH);
                tile += together * WIDTH;
            }
        }
        for (int64_t r = 0; r < n; r++) {
            int64_t to = (from + r) / p.B * p.B + p.place((from + r) % p.B);
            std::memcpy(p.d_x + to * p.I, dx + r * row, p.I * sizeof(float));
        }
    }
}

void backward(const Problem& p) {
    Layout w(p);
    std::memset(w.dvectors, 0, p.threads * Cell::VECTORS * w.units * sizeof(float));
    if (Cell::TIMED) std::memset(w.ddt, 0, p.threads * p.S * p.B * sizeof(float));
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w);
        pack_weights_back(p, w);
        for (int f = 0; f < Cell::FIELDS; f++) fetch_units(p, me, p.d_last[f], w.dstate[f], w.unit_row, true);
        barrier();
        for (int64_t t = p.S - 1; t >= 0; t--) {
            for (int64_t n = 0; n < me.groups.size(); n++) {
                int64_t group = turn(me.groups, t, n);
                if (t + 1 < p.S) recur_back(p, w, me, t + 1, group, turn(me.groups, t, n + 1));
                if constexpr (!BY_ROW) pointwise_backward(p, w, me, t, group);
            }
            if constexpr (BY_ROW) rows_backward(p, w, me, t);
            if (me.sharers > 1) barrier();
        }
        if (p.d_state[0])
            for (int64_t group = me.groups.from; group < me.groups.to; group++) recur_back(p, w, me, 0, group, group);
        for (int f = 0; f < Cell::FIELDS; f++)
            if (p.d_state[f]) leave_units(p, me, w.dstate[f], w.unit_row, p.d_state[f]);
        barrier();
        if (p.d_ih) {
            int64_t team = team_size(), column_parts = team > w.time_parts ? team / w.time_parts : 1;
            for (int64_t n = thread_number(); n < w.time_parts * column_parts; n += team)
                sum_gradients(p, w, n / column_parts, part(w.columns / WIDTH, n % column_parts, column_parts));
            barrier();
            write_gradients(p, w);
        }
        if (p.d_x) input_gradient(p, w);
    }
    add_up_vectors(p, Cell::VECTORS, w.units, w.dvectors, Cell::VECTORS * w.units);
    if (Cell::TIMED && p.d_dt) add_up_dt(p, w.ddt);
}

}  // namespace

#include "interface.h"
