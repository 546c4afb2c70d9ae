// The time loop of a cell without recurrent weights on the CPU: forward and exact backward, float32. loop.cpp is the
// loop of all other cells. Both include the struct `Cell` that emit_cpp.py writes, and have the same interface.
//
// The gates read only the input, so the sequences need not go through time together. A thread takes a few sequences at
// a time, in chunks of steps: it projects the inputs of a chunk, and computes the equations of its steps. Backward takes
// the chunks in reverse order, projects the inputs again, overwrites the pre-activations with their gradients, and adds
// the products of these to the gradients of the weights. So only one chunk's pre-activations exist at a time, in the
// cache. Forward keeps the fields of the state for backward, except h, which is the output.
//
// Letters: S steps, B batch, I input, H hidden. The C interface is at the end. No other library is needed.

#include "vectors.h"
#include "products.h"
#include "threads.h"
#include "problem.h"

namespace {  // libraries in one process would share the names, and with them the code, of one cell

#include CELL

constexpr int BLOCKS = Cell::X_ONLY;
static_assert(Cell::SUMS == 0 && Cell::H_ONLY == 0, "the gates of a scan cell read only the input");

constexpr int64_t MOST = 96;           // rows of a chunk: pairs of a step and a sequence
constexpr int64_t SEQUENCES = 8;       // of a chunk
constexpr int64_t NUMBERS = 128 << 10;  // pre-activations of a chunk, so that they stay in the second-level cache

// Threads divide the batch among them and, if there are fewer sequences than threads, also the units.
int64_t sharers_of(int64_t team, int64_t B) {
    int64_t sharers = 1;
    while (team % sharers || team / sharers > B) sharers++;
    return sharers;
}

struct Layout : Workspace {
    int64_t groups, units, panels;     // units: H rounded up to whole groups; a panel has the columns of one group
    int64_t in, in_row;                // length of [x, 1]
    int64_t sequences, steps, chunk;   // of a chunk; chunk: its rows
    int64_t panel, unit_row, dx_row;   // panel: numbers of a chunk's panel, and a line, so that panels differ in place
    int64_t unit_step;                 // 0 if only the current step is kept
    float* state[Cell::FIELDS];        // for each field but h (S + 1, B, units)
    float *weights, *weights_back;     // tiles (in, WIDTH) for each panel; (panels * WIDTH, WIDTH) for each group of inputs
    // For each thread: [x, 1] of a chunk, and in the order of the weight gradients' tiles; pre-activations; numbers per
    // unit, and their gradients; gradients of the state, of the weights (tiles as `weights`), of x.
    float *inputs, *left, *z, *vectors, *dvectors, *dstate, *gradient, *dx;
    float* ddt;  // (threads, S, B)

    Layout(const Problem& p) {
        groups = ceil_div(p.H, WIDTH), units = groups * WIDTH, panels = BLOCKS * groups;
        in = p.I + 1, in_row = odd_lines(in), unit_row = odd_lines(units);
        sequences = p.B < SEQUENCES ? p.B : SEQUENCES;
        int64_t rows = NUMBERS / (panels * WIDTH);
        rows = rows > MOST ? MOST : rows;
        steps = rows > sequences ? rows / sequences : 1;
        steps = steps > p.S ? p.S : steps;
        chunk = sequences * steps, panel = chunk * WIDTH + LINE;
        dx_row = odd_lines(ceil_div(p.I, WIDTH) * WIDTH);
        unit_step = p.keep ? p.B * unit_row : 0;
        for (int f = 1; f < Cell::FIELDS; f++) state[f] = take(p, ((p.keep ? p.S : 0) + 1) * p.B * unit_row);
        weights = take(p, panels * in * WIDTH);
        inputs = take(p, p.threads * inputs_size());
        z = take(p, p.threads * z_size());
        vectors = take(p, p.threads * vectors_size());
        if (!p.keep) return;
        weights_back = take(p, panels * WIDTH * ceil_div(p.I, WIDTH) * WIDTH);
        left = take(p, p.threads * left_size());
        dvectors = take(p, p.threads * vectors_size());
        dstate = take(p, p.threads * dstate_size());
        gradient = take(p, p.threads * panels * in * WIDTH);
        dx = take(p, p.threads * chunk * dx_row);
        ddt = take(p, Cell::TIMED ? p.threads * p.S * p.B : 0);
    }
    int64_t inputs_size() const { return chunk * in_row; }
    int64_t left_size() const { return ceil_div(in, ROWS) * ROWS * chunk; }
    int64_t z_size() const { return panels * panel; }
    int64_t vectors_size() const { return ceil_div(Cell::VECTORS * units, LINE) * LINE; }
    int64_t dstate_size() const { return Cell::FIELDS * sequences * unit_row; }
};

Share share(const Problem& p, const Layout& w) {
    int64_t team = team_size(), sharers = sharers_of(team, p.B), slices = team / sharers, me = thread_number();
    return {part(p.B, me / sharers, slices), part(w.groups, me % sharers, sharers), me % sharers, sharers};
}

// A chunk: some steps of some sequences of a thread. `place`: the row of each step and sequence, or -1 if it does not
// exist. There is one row for each that exists.
struct Chunk {
    Range steps, sequences;
    int64_t rows = 0;
    int16_t place[MOST];
    int64_t row(int64_t t, int64_t b) const { return place[(t - steps.from) * sequences.size() + b - sequences.from]; }
};

// Number of parts of a thread's sequences. It is the same for all threads, since threads that share units may wait for
// each other.
int64_t parts_of(const Problem& p, const Layout& w, const Share& me) {
    return ceil_div(ceil_div(p.B * me.sharers, team_size()), w.sequences);
}

// ---------------------------------------------------------------------------------------------- both passes

// Weights in tiles: for each panel, (in, WIDTH); columns beyond H are zero.
void pack_weights(const Problem& p, const Layout& w) {
    Range range = part(w.panels, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int64_t first = n % w.groups * WIDTH;
        float* to = w.weights + n * w.in * WIDTH;
        for (int64_t l = 0; l < WIDTH; l++) {
            bool exists = first + l < p.H;
            int64_t row = Cell::gate(n / w.groups) * p.H + first + l;
            for (int64_t i = 0; i < p.I; i++) to[i * WIDTH + l] = exists ? p.ih[row * p.I + i] : 0.0f;
            to[p.I * WIDTH + l] = exists ? p.bias_ih[row] : 0.0f;
        }
    }
}

// The numbers per unit of this thread's groups.
float* fetch_vectors(const Problem& p, const Layout& w, const Share& me) {
    float* to = w.vectors + thread_number() * w.vectors_size();
    for (int v = 0; v < Cell::VECTORS; v++)
        for (int64_t u = me.groups.from * WIDTH; u < me.groups.to * WIDTH; u++)
            to[v * w.units + u] = u < p.H ? p.vectors[v][u] : 0.0f;
    return to;
}

// Find the rows of a chunk, and compute the pre-activations of this thread's panels.
void project(const Problem& p, const Layout& w, const Share& me, Chunk& c, float* z) {
    float* in = w.inputs + thread_number() * w.inputs_size();
    int16_t* place = c.place;
    c.rows = 0;
    for (int64_t t = c.steps.from; t < c.steps.to; t++)
        for (int64_t b = c.sequences.from; b < c.sequences.to; b++) {
            if (!p.exists(t, b)) {
                *place++ = -1;
                continue;
            }
            float* row = in + c.rows * w.in_row;
            std::memcpy(row, p.x + t * p.x_step + p.place(b) * p.x_row, p.I * sizeof(float));
            row[p.I] = 1.0f;
            *place++ = (int16_t)c.rows++;
        }
    for (int k = 0; k < BLOCKS; k++)
        for (int64_t g = me.groups.from; g < me.groups.to; g++) {
            int64_t n = k * w.groups + g;
            product(c.rows, w.in, in, w.in_row, w.weights + n * w.in * WIDTH, z + n * w.panel, WIDTH, false);
        }
}

// The numbers that the equations read at one step of one sequence and group of units.
struct Read {
    Vec z[length(BLOCKS)], state[Cell::FIELDS], vectors[length(Cell::VECTORS)], noise[length(Cell::NOISES)], dt;
};
// `before`: the h of the step before, (H). `z`: the row in the first panel.
INLINE void read_step(const Problem& p, const Layout& w, int64_t t, int64_t b, int64_t g, const float* z,
                      const float* before, const float* vectors, Read& r) {
    int64_t u = g * WIDTH;
    for (int k = 0; k < BLOCKS; k++) r.z[k] = load(z + (k * w.groups + g) * w.panel);
    if (Cell::READS_H) r.state[0] = load_cut(before + u, p.H - u);
    for (int f = 1; f < Cell::FIELDS; f++) r.state[f] = load(w.state[f] + t * w.unit_step + b * w.unit_row + u);
    for (int v = 0; v < Cell::VECTORS; v++) r.vectors[v] = load(vectors + v * w.units + u);
    for (int n = 0; n < Cell::NOISES; n++)
        r.noise[n] = load_cut(p.noise[n] + (t * p.B + p.place(b)) * p.H + u, p.H - u);
    if (Cell::TIMED) r.dt = spread_vec(p.dt[t * p.B + p.place(b)]);
}

// ---------------------------------------------------------------------------------------------- forward

// Keep the state after a step of one sequence and group of units.
INLINE void keep_step(const Problem& p, const Layout& w, int64_t t, int64_t b, int64_t u, Vec* now) {
    leave_step<Cell::FIELDS>(p, t, b, u, now);
    for (int f = 1; f < Cell::FIELDS; f++) store(w.state[f] + (t + 1) * w.unit_step + b * w.unit_row + u, now[f]);
}

// A step that does not exist does not change the state.
void carry(const Problem& p, const Layout& w, const Share& me, int64_t t, int64_t b) {
    const float* before = h_before(p, t, b);
    for (int64_t u = me.groups.from * WIDTH; u < me.groups.to * WIDTH; u += WIDTH) {
        Vec now[Cell::FIELDS];
        now[0] = load_cut(before + u, p.H - u);
        for (int f = 1; f < Cell::FIELDS; f++) now[f] = load(w.state[f] + t * w.unit_step + b * w.unit_row + u);
        keep_step(p, w, t, b, u, now);
    }
}

void chunk_forward(const Problem& p, const Layout& w, const Share& me, Chunk& c, float* z, const float* vectors) {
    project(p, w, me, c, z);
    for (int64_t t = c.steps.from; t < c.steps.to; t++)
        for (int64_t b = c.sequences.from; b < c.sequences.to; b++) {
            if (c.row(t, b) < 0) {
                carry(p, w, me, t, b);
                continue;
            }
            const float *before = h_before(p, t, b), *row = z + c.row(t, b) * WIDTH;
            for (int64_t g = me.groups.from; g < me.groups.to; g++) {
                Read r;
                Vec now[Cell::FIELDS];
                read_step(p, w, t, b, g, row, before, vectors, r);
                Cell::forward(r.z, r.state, r.vectors, r.noise, r.dt, now);
                keep_step(p, w, t, b, g * WIDTH, now);
            }
        }
}

void forward(const Problem& p) {
    Layout w(p);
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w);
        float *z = w.z + thread_number() * w.z_size(), *vectors = fetch_vectors(p, w, me);
        pack_weights(p, w);
        for (int f = 1; f < Cell::FIELDS; f++) fetch_units(p, me, p.state[f], w.state[f], w.unit_row, true);
        barrier();
        for (int64_t from = me.rows.from; from < me.rows.to; from += w.sequences)
            for (int64_t t = 0; t < p.S; t += w.steps) {
                Chunk c;
                c.steps = {t, t + w.steps < p.S ? t + w.steps : p.S};
                c.sequences = {from, from + w.sequences < me.rows.to ? from + w.sequences : me.rows.to};
                chunk_forward(p, w, me, c, z, vectors);
            }
        for (int f = 1; f < Cell::FIELDS; f++)
            leave_units(p, me, w.state[f] + p.S * w.unit_step, w.unit_row, p.last[f]);
        int64_t first = me.groups.from * WIDTH, end = me.groups.to * WIDTH < p.H ? me.groups.to * WIDTH : p.H;
        for (int64_t b = me.rows.from; b < me.rows.to; b++)
            for (int64_t u = first; u < end; u++) p.last[0][p.place(b) * p.H + u] = h_before(p, p.S, b)[u];
    }
}

// ---------------------------------------------------------------------------------------------- backward

// weights_back: for each group of inputs the tile (panels * WIDTH, WIDTH) of the weights.
void pack_weights_back(const Problem& p, const Layout& w) {
    Range range = part(ceil_div(p.I, WIDTH), thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++)
        for (int64_t column = 0; column < w.panels * WIDTH; column++) {
            int64_t unit = column % w.units, row = Cell::gate(column / w.units) * p.H + unit;
            float* to = w.weights_back + (n * w.panels * WIDTH + column) * WIDTH;
            for (int64_t l = 0; l < WIDTH; l++)
                to[l] = unit < p.H && n * WIDTH + l < p.I ? p.ih[row * p.I + n * WIDTH + l] : 0.0f;
        }
}

// gradient += [x, 1]^T dz of a chunk, for this thread's panels.
void add_gradients(const Layout& w, const Share& me, const Chunk& c, const float* z) {
    const float* in = w.inputs + thread_number() * w.inputs_size();
    float *left = w.left + thread_number() * w.left_size(), *sums = w.gradient + thread_number() * w.panels * w.in * WIDTH;
    int64_t tiles = ceil_div(w.in, ROWS);
    for (int64_t m = 0; m < tiles; m++) {
        Range r = part(w.in, m, tiles);
        for (int64_t k = 0; k < c.rows; k++)
            std::memcpy(left + (m * c.rows + k) * ROWS, in + k * w.in_row + r.from, r.size() * sizeof(float));
    }
    for (int k = 0; k < BLOCKS; k++)
        for (int64_t g = me.groups.from; g < me.groups.to; g++) {
            int64_t n = k * w.groups + g;
            for (int64_t m = 0; m < tiles; m++) {
                Range r = part(w.in, m, tiles);
                product_of_packed(r.size(), c.rows, left + m * c.rows * ROWS, z + n * w.panel,
                                  sums + (n * w.in + r.from) * WIDTH, true);
            }
        }
}

// dx = dz W of a chunk, for a part of its rows.
void input_gradient(const Problem& p, const Layout& w, const Share& me, const Chunk& c, const float* z, Range rows) {
    float* dx = w.dx + thread_number() * w.chunk * w.dx_row;
    for (int64_t j = 0; j < ceil_div(p.I, WIDTH); j++)
        for (int64_t n = 0; n < w.panels; n++)
            product(rows.size(), WIDTH, z + n * w.panel + rows.from * WIDTH, WIDTH,
                    w.weights_back + (j * w.panels + n) * WIDTH * WIDTH, dx + j * WIDTH, w.dx_row, n > 0);
    for (int64_t t = c.steps.from; t < c.steps.to; t++)
        for (int64_t b = c.sequences.from; b < c.sequences.to; b++) {
            int64_t row = c.row(t, b);
            float* to = p.d_x + (t * p.B + p.place(b)) * p.I;
            if (row >= rows.from && row < rows.to)
                std::memcpy(to, dx + (row - rows.from) * w.dx_row, p.I * sizeof(float));
            else if (row < 0 && me.sharer == 0) std::memset(to, 0, p.I * sizeof(float));
        }
}

// The steps of a chunk backward. `dstate`: the gradients of the state, for each field (sequences, units).
void steps_backward(const Problem& p, const Layout& w, const Share& me, const Chunk& c, float* z, float* dstate,
                    const float* vectors, float* dvectors) {
    for (int64_t t = c.steps.to - 1; t >= c.steps.from; t--)
        for (int64_t b = c.sequences.from; b < c.sequences.to; b++) {
            const float* before = h_before(p, t, b);
            bool exists = c.row(t, b) >= 0;
            float *row = z + (exists ? c.row(t, b) : 0) * WIDTH, *ds = dstate + (b - c.sequences.from) * w.unit_row;
            Vec times{};
            for (int64_t g = me.groups.from; g < me.groups.to; g++) {
                int64_t u = g * WIDTH;
                Vec d[Cell::FIELDS], dz[length(BLOCKS)], dbefore[Cell::FIELDS], dv[length(Cell::VECTORS)], ddt{};
                for (int f = 0; f < Cell::FIELDS; f++) d[f] = load(ds + f * w.sequences * w.unit_row + u);
                fetch_step<Cell::FIELDS>(p, t, b, u, d);
                if (!exists) {  // the state did not change: its gradient passes through
                    for (int f = 0; f < Cell::FIELDS; f++) store(ds + f * w.sequences * w.unit_row + u, d[f]);
                    continue;
                }
                Read r;
                read_step(p, w, t, b, g, row, before, vectors, r);
                Cell::backward(r.z, r.state, r.vectors, r.noise, r.dt, d, dz, dbefore, dv, ddt);
                // Units beyond H must not enter the products: 0 times infinity is not 0.
                for (int k = 0; k < BLOCKS; k++)
                    store(row + (k * w.groups + g) * w.panel, flushed(cut(dz[k], p.H - u)));
                for (int f = 0; f < Cell::FIELDS; f++)
                    store(ds + f * w.sequences * w.unit_row + u, cut(dbefore[f], p.H - u));
                for (int v = 0; v < Cell::VECTORS; v++) {
                    float* sum = dvectors + v * w.units + u;
                    store(sum, load(sum) + dv[v]);
                }
                if (Cell::TIMED) times = times + cut(ddt, p.H - u);
            }
            if (Cell::TIMED && p.d_dt) w.ddt[(me.sharer * p.S + t) * p.B + b] = total(times);
        }
}

// The gradients of the state of some sequences, from those of the last state or to those of the first.
void copy_dstate(const Problem& p, const Layout& w, const Share& me, Range sequences, float* dstate, bool back) {
    Share some{sequences, me.groups, 0, 1};
    for (int f = 0; f < Cell::FIELDS; f++) {
        float* at = dstate + f * w.sequences * w.unit_row - sequences.from * w.unit_row;
        if (!back) fetch_units(p, some, p.d_last[f], at, w.unit_row, true);
        else if (p.d_state[f]) leave_units(p, some, at, w.unit_row, p.d_state[f]);
    }
}

// Add the sums of all threads, and transpose them: column by column to the rows of ih and of the bias.
void write_gradients(const Problem& p, const Layout& w, const Share& me) {
    Range range = part(w.panels, thread_number(), team_size());
    for (int64_t n = range.from; n < range.to; n++) {
        int64_t first = n % w.groups * WIDTH, row = Cell::gate(n / w.groups) * p.H + first;
        for (int64_t i = 0; i < w.in; i++)
            for (int64_t l = 0; l < WIDTH && first + l < p.H; l++) {
                float sum = 0.0f;
                for (int64_t k = 0; k < team_size(); k++) sum += w.gradient[((k * w.panels + n) * w.in + i) * WIDTH + l];
                if (i < p.I) p.d_ih[(row + l) * p.I + i] = sum;
                else p.d_bias_ih[row + l] = sum;
            }
    }
}

void backward(const Problem& p) {
    Layout w(p);
    std::memset(w.dvectors, 0, p.threads * w.vectors_size() * sizeof(float));
    std::memset(w.gradient, 0, p.threads * w.panels * w.in * WIDTH * sizeof(float));
    if (Cell::TIMED) std::memset(w.ddt, 0, p.threads * p.S * p.B * sizeof(float));
#pragma omp parallel num_threads(p.threads)
    {
        Flush flush;
        Share me = share(p, w);
        bool together = p.d_x && me.sharers > 1;  // a row of dx needs the panels of all threads that share the sequences
        int64_t owner = together ? thread_number() - me.sharer : thread_number();
        float *z = w.z + owner * w.z_size(), *vectors = fetch_vectors(p, w, me);
        float *dstate = w.dstate + thread_number() * w.dstate_size();
        float *dvectors = w.dvectors + thread_number() * w.vectors_size();
        if (p.d_x) pack_weights_back(p, w);
        pack_weights(p, w);
        barrier();
        for (int64_t n = 0; n < parts_of(p, w, me); n++) {
            int64_t from = me.rows.from + n * w.sequences, to = from + w.sequences;
            Range sequences{from < me.rows.to ? from : me.rows.to, to < me.rows.to ? to : me.rows.to};
            copy_dstate(p, w, me, sequences, dstate, false);
            for (int64_t end = p.S; end > 0;) {
                Chunk c;
                c.steps = {(end - 1) / w.steps * w.steps, end};
                c.sequences = sequences;
                end = c.steps.from;
                project(p, w, me, c, z);
                steps_backward(p, w, me, c, z, dstate, vectors, dvectors);
                if (p.d_ih) add_gradients(w, me, c, z);
                if (together) barrier();
                if (p.d_x) input_gradient(p, w, me, c, z, part(c.rows, me.sharer, me.sharers));
                if (together) barrier();
            }
            copy_dstate(p, w, me, sequences, dstate, true);
        }
        barrier();
        if (p.d_ih) write_gradients(p, w, me);
    }
    add_up_vectors(p, Cell::VECTORS, w.units, w.dvectors, w.vectors_size());
    if (Cell::TIMED && p.d_dt) add_up_dt(p, w.ddt);
}

}  // namespace

#include "interface.h"
