// A whole sequence in one kernel, on clusters of thread blocks: `forward` and `backward` of a cell.
//
// Before this text stand cluster.h, the sizes H, CLUSTER (thread blocks of a cluster), SEQUENCES (that a cluster runs)
// and AHEAD (steps by which copies of inputs begin before these are needed), and the cell's equations as `struct Cell`.
// Arrays are those of buffers.py. The grid is (clusters x CLUSTER, seeds): a cluster has sequences of one seed.
//
// The thread block g of a cluster owns UNITS units of every gate, from g UNITS on. Their rows of the recurrent weights
// stay in its registers for the whole sequence, and a step's equations of a unit need no other block. Between two steps
// the blocks exchange h, or in backward their shares of its gradient, by stores into each other's shared memory, with
// one barrier of the cluster. A cumax takes one more in the middle of a step. All sums have a fixed order.

constexpr int UNITS = (H + CLUSTER - 1) / CLUSTER;
constexpr int LANES = CLUSTER;  // neighbouring threads that share the product of a unit
constexpr int THREADS = (UNITS * LANES + 31) / 32 * 32;
constexpr int EACH = SEQUENCES / LANES;  // sequences of a thread
constexpr int PER_LANE = (H + 4 * LANES - 1) / (4 * LANES) * 4;  // numbers of h in a thread's share of a product
constexpr int WIDTH = PER_LANE * LANES;                           // H, and zeros
constexpr int GATES = Cell::X_ONLY + Cell::SUMS + Cell::H_ONLY;  // blocks of pre-activations
constexpr int RECURRENT = Cell::SUMS + Cell::H_ONLY;             // those with a recurrent share, the last ones
constexpr int ROWS = (RECURRENT * UNITS + 3) / 4 * 4;            // rows of the recurrent weights, and zeros
// Number of blocks before this one whose cumax the step takes; and of all.
constexpr int cumaxes_before(int block) {
    int n = 0;
    for (int k = 0; k < block; ++k) n += Cell::is_row(k);
    return n;
}
constexpr int CUMAXES = cumaxes_before(GATES);
constexpr int FIELDS = Cell::FIELDS, VECTORS = Cell::VECTORS, NOISES = Cell::NOISES;

static_assert(SEQUENCES % LANES == 0 && 32 % LANES == 0, "each thread has as many sequences");

struct Arguments {  // in the order of cluster_kernels.py; what is absent is null
    float* z;             // of a cumax its softmax, after `forward`
    float* cumax[GATES];  // null for blocks without
    const float* hh;
    float* state[FIELDS];
    const float* vector[VECTORS + 1];
    const float* noise[NOISES + 1];
    const float *dt, *flags, *initial[FIELDS];  // flags: EXISTS, BEGINS or both
    float* output[FIELDS];                      // the state after each step, before it is the initial one again
    const float* d_output[FIELDS];
    float *d_state[FIELDS], *d_initial[FIELDS];
    float* d_vector[VECTORS + 1];
    float* d_dt;
    int first, end, steps, batch;  // this launch runs the steps first .. end - 1
};

// Flags of a step in the form of a number: it exists; after it the sequence begins again.
constexpr int EXISTS = 1, BEGINS = 2;

// Where a thread's numbers are: of one unit, and of EACH sequences.
struct Place {
    int unit, lane, rank, local;  // local: number of the unit in its block
    bool owns;                    // false for threads beyond the units, which take part in exchanges and barriers
    bool live[EACH];              // whether the sequence exists, too
    int seed, sequence, first;    // sequence: the first of the thread; first: its place in (R, S, B) at step 0

    DEVICE Place(const Arguments& a) {
        rank = cluster_rank(), local = threadIdx.x / LANES, lane = threadIdx.x % LANES, unit = rank * UNITS + local;
        owns = local < UNITS && unit < H;
        seed = blockIdx.y, sequence = blockIdx.x / CLUSTER * SEQUENCES + lane;
        first = seed * a.steps * a.batch + sequence;
        for (int e = 0; e < EACH; ++e) live[e] = owns && sequence + LANES * e < a.batch;
    }
    // Places in dt and flags (R, S, B), in what has a number per unit (R, S, B, H), and in z.
    DEVICE int step(const Arguments& a, int t, int e) const { return first + t * a.batch + LANES * e; }
    DEVICE long long of_unit(const Arguments& a, int t, int e) const { return (long long)step(a, t, e) * H + unit; }
    DEVICE long long of_gate(const Arguments& a, int t, int e, int k) const {
        return (long long)step(a, t, e) * (GATES * H) + unit + k * H;
    }
    // In a state (R, S + 1, B, H), before step t; and in what has no steps (R, B, H).
    DEVICE long long before(const Arguments& a, int t, int e) const {
        return (long long)(step(a, t, e) + seed * a.batch) * H + unit;
    }
    DEVICE long long of_sequence(const Arguments& a, int e) const {
        return (long long)(seed * a.batch + sequence + LANES * e) * H + unit;
    }
};

// What a step reads of global memory, of one unit and one sequence.
struct Inputs {
    float z[GATES], cumax[GATES], state[FIELDS], noise[NOISES + 1], dt, d_output;
    bool exists, begins;
};

// The inputs of a thread for AHEAD + 1 steps, in shared memory. Each thread reads what it copied itself.
template <bool IS_BACKWARD>
struct Ring {
    static constexpr int STATES = Cell::READS_H ? 0 : 1;  // the first field that backward reads
    static constexpr int NUMBERS = GATES + (IS_BACKWARD ? CUMAXES + FIELDS - STATES + 1 : 0) + NOISES + Cell::TIMED + 1;
    static constexpr int SIZE = (AHEAD + 1) * NUMBERS * EACH * THREADS;
    float* numbers;
    int slot = 0;  // of the step that is read next

    DEVICE Ring(float* shared) : numbers(shared) {
        for (int i = threadIdx.x; i < SIZE; i += THREADS) numbers[i] = 0.0f;  // what is not copied stays 0
        block_sync();  // no zero comes after a copy
    }
    DEVICE float* place(int ahead, int number, int e) const {
        const int of = slot + ahead > AHEAD ? slot + ahead - AHEAD - 1 : slot + ahead;
        return numbers + ((of * NUMBERS + number) * EACH + e) * THREADS + threadIdx.x;
    }
    // Begin to copy the inputs of step t, which is `ahead` steps after the one that is read next.
    DEVICE void begin(const Arguments& a, const Place& p, int t, int ahead, bool is_step) const {
        if (is_step) {
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                if (!p.live[e]) continue;
                int n = 0;
#pragma unroll
                for (int k = 0; k < GATES; ++k) fetch(place(ahead, n++, e), a.z + p.of_gate(a, t, e, k));
                if (IS_BACKWARD) {
#pragma unroll
                    for (int k = 0; k < GATES; ++k)
                        if (Cell::is_row(k)) fetch(place(ahead, n++, e), a.cumax[k] + p.of_unit(a, t, e));
#pragma unroll
                    for (int k = STATES; k < FIELDS; ++k) fetch(place(ahead, n++, e), a.state[k] + p.before(a, t, e));
                    if (a.d_output[0]) fetch(place(ahead, n, e), a.d_output[0] + p.of_unit(a, t, e));
                    ++n;
                }
#pragma unroll
                for (int k = 0; k < NOISES; ++k) fetch(place(ahead, n++, e), a.noise[k] + p.of_unit(a, t, e));
                if (Cell::TIMED) fetch(place(ahead, n++, e), a.dt + p.step(a, t, e));
                if (a.flags) fetch(place(ahead, n, e), a.flags + p.step(a, t, e));
            }
        }
        end_of_group();
    }
    DEVICE Inputs read(const Arguments& a, int e) const {
        Inputs in;
        int n = 0;
#pragma unroll
        for (int k = 0; k < GATES; ++k) in.z[k] = *place(0, n++, e);
        if (IS_BACKWARD) {
#pragma unroll
            for (int k = 0; k < GATES; ++k)
                if (Cell::is_row(k)) in.cumax[k] = *place(0, n++, e);
            in.state[0] = 0.0f;
#pragma unroll
            for (int k = STATES; k < FIELDS; ++k) in.state[k] = *place(0, n++, e);
            in.d_output = *place(0, n++, e);
        }
#pragma unroll
        for (int k = 0; k < NOISES; ++k) in.noise[k] = *place(0, n++, e);
        in.dt = Cell::TIMED ? *place(0, n++, e) : 1.0f;
        const int flags = a.flags ? (int)*place(0, n, e) : EXISTS;
        in.exists = flags & EXISTS, in.begins = flags & BEGINS;
        return in;
    }
    DEVICE void next() { slot = slot == AHEAD ? 0 : slot + 1; }
};

DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// The cumax of a step, which is the running sum of a softmax over all units, and its gradient. A thread adds up the
// numbers of its block's units, and of what the blocks then tell each other. A gate with fewer rows than units has each
// row once for each of its units, and the first of them counts.
struct Cumax {
    static constexpr int OF_UNITS = CUMAXES * 2 * UNITS * SEQUENCES, OF_BLOCKS = CUMAXES * 2 * CLUSTER * SEQUENCES;
    static constexpr int SIZE = OF_UNITS + OF_BLOCKS + (CUMAXES == 0);  // no array is empty
    static constexpr float LOWEST = -3e38f;  // of units that do not exist
    float *of_units, *of_blocks;             // two numbers of each unit of this block, and of each block
    const Place& p;

    DEVICE Cumax(float* shared, const Place& place) : of_units(shared), of_blocks(shared + OF_UNITS), p(place) {}
    DEVICE float& of_unit(int e, int k, int which, int local) const {
        return of_units[((cumaxes_before(k) * 2 + which) * UNITS + local) * SEQUENCES + p.lane + LANES * e];
    }
    DEVICE float& of_block(int e, int k, int which, int rank) const {
        return of_blocks[((cumaxes_before(k) * 2 + which) * CLUSTER + rank) * SEQUENCES + p.lane + LANES * e];
    }
    // Tell all blocks. Threads with the same lane have the same number; each stores it to other blocks.
    DEVICE void tell(int e, int k, int which, float value) const {
        for (int g = p.local; g < CLUSTER; g += UNITS) remote_store(&of_block(e, k, which, p.rank), g, value);
    }
    // Call a function of (e, k) for each sequence of the thread and each block of pre-activations with a cumax.
    template <class Function>
    static DEVICE void each(Function function) {
#pragma unroll
        for (int e = 0; e < EACH; ++e)
#pragma unroll
            for (int k = 0; k < GATES; ++k)
                if (Cell::is_row(k)) function(e, k);
    }
    // Before: the pre-activations in z. After: the cumax in z, and the softmax.
    DEVICE void forward(float (&z)[EACH][GATES], float (&softmax)[EACH][GATES]) const {
        float largest[EACH][GATES], sum[EACH][GATES];
        each([&](int e, int k) {
            if (p.local < UNITS) of_unit(e, k, 0, p.local) = p.owns ? z[e][k] : LOWEST;
        });
        block_sync();
        each([&](int e, int k) {
            largest[e][k] = of_unit(e, k, 0, 0);
            for (int i = 1; i < UNITS; ++i) largest[e][k] = maximum(largest[e][k], of_unit(e, k, 0, i));
            const bool counts = p.owns && p.unit % Cell::divisor(Cell::gate(k)) == 0;
            softmax[e][k] = counts ? exp_of(z[e][k] - largest[e][k]) : 0.0f;
            if (p.local < UNITS) of_unit(e, k, 1, p.local) = softmax[e][k];
        });
        block_sync();
        each([&](int e, int k) {
            float total = 0.0f;
            for (int i = 0; i < UNITS; ++i) {
                total += of_unit(e, k, 1, i);
                if (i == p.local) sum[e][k] = total;
            }
            tell(e, k, 0, largest[e][k]);
            tell(e, k, 1, total);
        });
        cluster_sync();
        each([&](int e, int k) {
            float largest_of_all = of_block(e, k, 0, 0), total = 0.0f;
            for (int g = 1; g < CLUSTER; ++g) largest_of_all = maximum(largest_of_all, of_block(e, k, 0, g));
            for (int g = 0; g < CLUSTER; ++g) {
                const float scale = exp_of(of_block(e, k, 0, g) - largest_of_all);
                if (g == p.rank) sum[e][k] = total + scale * sum[e][k], softmax[e][k] *= scale;
                total += scale * of_block(e, k, 1, g);
            }
            softmax[e][k] /= total;
            z[e][k] = minimum(1.0f, sum[e][k] / total);  // rounding may give slightly more than 1
        });
    }
    // Before: the gradients of the cumax in dz. After: those of the pre-activations.
    DEVICE void backward(float (&dz)[EACH][GATES], const float (&cumax)[EACH][GATES],
                         const float (&softmax)[EACH][GATES]) const {
        float later[EACH][GATES];  // the gradient of the softmax: the sum over this unit and all later ones
        each([&](int e, int k) {
            if (p.local >= UNITS) return;
            of_unit(e, k, 0, p.local) = p.owns ? dz[e][k] : 0.0f;
            of_unit(e, k, 1, p.local) = p.owns ? dz[e][k] * cumax[e][k] : 0.0f;
        });
        block_sync();
        each([&](int e, int k) {
            float total = 0.0f, product = 0.0f;
            for (int i = UNITS - 1; i >= 0; --i) {
                total += of_unit(e, k, 0, i);
                product += of_unit(e, k, 1, i);
                if (i == p.local) later[e][k] = total;
            }
            tell(e, k, 0, total);
            tell(e, k, 1, product);
        });
        cluster_sync();
        each([&](int e, int k) {
            float total = 0.0f, product = 0.0f;
            for (int g = CLUSTER - 1; g >= 0; --g) {
                if (g == p.rank) later[e][k] += total;
                total += of_block(e, k, 0, g);
                product += of_block(e, k, 1, g);
            }
            dz[e][k] = softmax[e][k] * (later[e][k] - product);
        });
    }
};

// sum += w . v, of four numbers.
DEVICE float add_product(const float* w, float4 v, float sum) {
    return fmaf(w[0], v.x, fmaf(w[1], v.y, fmaf(w[2], v.z, fmaf(w[3], v.w, sum))));
}

// Thread (local, lane): the product of a unit's rows with the lane's share of h, of all sequences; then the equations of
// that unit, of its own sequences.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    forward(const __grid_constant__ Arguments a) {
    SHARED(h_buffers, 2 * SEQUENCES * WIDTH);
    SHARED(inputs, Ring<false>::SIZE);
    SHARED(of_cumax, Cumax::SIZE);
    const Place p(a);
    const Cumax cumax(of_cumax, p);
    float w[RECURRENT][PER_LANE], vector[VECTORS + 1], state[EACH][FIELDS];
#pragma unroll
    for (int k = 0; k < RECURRENT; ++k)
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int j = (i / 4 * LANES + p.lane) * 4 + i % 4;
            w[k][i] = p.owns && j < H ? a.hh[(((long long)p.seed * RECURRENT + k) * H + p.unit) * H + j] : 0.0f;
        }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) vector[k] = p.owns ? a.vector[k][p.seed * H + p.unit] : 0.0f;
    for (int i = threadIdx.x; i < 2 * SEQUENCES * WIDTH; i += THREADS) h_buffers[i] = 0.0f;
    cluster_sync();
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
#pragma unroll
        for (int k = 0; k < FIELDS; ++k) state[e][k] = p.live[e] ? a.state[k][p.before(a, a.first, e)] : 0.0f;
        if (p.owns)
            for (int g = 0; g < CLUSTER; ++g)
                remote_store(h_buffers + (p.lane + LANES * e) * WIDTH + p.unit, g, state[e][0]);
    }
    Ring<false> ring(inputs);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) ring.begin(a, p, a.first + i, i, a.first + i < a.end);
    cluster_sync();
    int here = 0;  // the buffer with h before the step; the other one gets h after it
    for (int t = a.first; t < a.end; ++t) {
        ring.begin(a, p, t + AHEAD, AHEAD, t + AHEAD < a.end);
        const float* h = h_buffers + here * SEQUENCES * WIDTH;
        here = 1 - here;
        float sum[RECURRENT][SEQUENCES];
#pragma unroll
        for (int k = 0; k < RECURRENT; ++k)
#pragma unroll
            for (int b = 0; b < SEQUENCES; ++b) sum[k][b] = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE / 4; ++i)
#pragma unroll
            for (int b = 0; b < SEQUENCES; ++b) {
                const float4 v = *(const float4*)(h + b * WIDTH + (i * LANES + p.lane) * 4);
#pragma unroll
                for (int k = 0; k < RECURRENT; ++k) sum[k][b] = add_product(w[k] + 4 * i, v, sum[k][b]);
            }
        // Add up the shares of the lanes. Each time a thread keeps half of its sequences and gives away the other half:
        // at last it has the sums of the sequences lane + LANES e.
#pragma unroll
        for (int m = LANES / 2; m; m /= 2)
#pragma unroll
            for (int b = 0; b < SEQUENCES; ++b)
                if (b % LANES < m)
#pragma unroll
                    for (int k = 0; k < RECURRENT; ++k) {
                        const bool upper = p.lane & m;
                        const float low = sum[k][b], high = sum[k][b + m];
                        sum[k][b] = (upper ? high : low) + exchange(upper ? low : high, m);
                    }
        arrived<AHEAD>();
        Inputs in[EACH];
        float z[EACH][GATES], softmax[EACH][GATES];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            in[e] = ring.read(a, e);
#pragma unroll
            for (int k = 0; k < GATES; ++k) z[e][k] = in[e].z[k];
#pragma unroll
            for (int k = 0; k < RECURRENT; ++k) z[e][GATES - RECURRENT + k] += sum[k][e * LANES];
        }
        if (CUMAXES) cumax.forward(z, softmax);
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            float now[FIELDS];
            Cell::forward(z[e], state[e], vector, in[e].noise, in[e].dt, now);
#pragma unroll
            for (int k = 0; k < FIELDS; ++k) state[e][k] = in[e].exists ? now[k] : state[e][k];
            if (a.initial[0] && p.live[e])
#pragma unroll
                for (int k = 0; k < FIELDS; ++k) {
                    if (a.output[k]) a.output[k][p.of_unit(a, t, e)] = state[e][k];
                    if (in[e].begins) state[e][k] = a.initial[k][p.of_sequence(a, e)];
                }
            if (p.owns)
#pragma unroll
                for (int g = 0; g < CLUSTER; ++g)
                    remote_store(h_buffers + (here * SEQUENCES + p.lane + LANES * e) * WIDTH + p.unit, g, state[e][0]);
        }
        ring.next();
        cluster_arrive();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {  // while the others arrive
            if (!p.live[e]) continue;
#pragma unroll
            for (int k = GATES - RECURRENT; k < GATES; ++k) {
                a.z[p.of_gate(a, t, e, k)] = Cell::is_row(k) ? softmax[e][k] : z[e][k];
                if (Cell::is_row(k)) a.cumax[k][p.of_unit(a, t, e)] = z[e][k];
            }
#pragma unroll
            for (int k = 0; k < FIELDS; ++k) a.state[k][p.before(a, t + 1, e)] = state[e][k];
        }
        cluster_wait();
    }
}

// Thread (local, lane) has the equations as in `forward`, thread j the product of column j with the rows of this block:
// the gradients of its pre-activations need not travel, but the shares of the gradient of h do.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    backward(const __grid_constant__ Arguments a) {
    SHARED(gradients, SEQUENCES* ROWS);
    SHARED(shares, 2 * CLUSTER * SEQUENCES * UNITS);
    SHARED(inputs, Ring<true>::SIZE);
    SHARED(of_cumax, Cumax::SIZE);
    const Place p(a);
    const Cumax cumax(of_cumax, p);
    const int column = threadIdx.x;
    float w[ROWS], vector[VECTORS + 1], d[EACH][FIELDS], d_vector[EACH][VECTORS + 1];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int unit = p.rank * UNITS + i % UNITS;
        const bool exists = i < RECURRENT * UNITS && unit < H && column < H;
        w[i] = exists ? a.hh[(((long long)p.seed * RECURRENT + i / UNITS) * H + unit) * H + column] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) vector[k] = p.owns ? a.vector[k][p.seed * H + p.unit] : 0.0f;
    for (int i = threadIdx.x; i < SEQUENCES * ROWS; i += THREADS) gradients[i] = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
#pragma unroll
        for (int k = 0; k < FIELDS; ++k) d[e][k] = p.live[e] ? a.d_state[k][p.of_sequence(a, e)] : 0.0f;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) d_vector[e][k] = 0.0f;
    }
    Ring<true> ring(inputs);
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) ring.begin(a, p, a.end - 1 - i, i, a.end - 1 - i >= a.first);
    cluster_sync();
    int here = 0;  // the half of `shares` for this step
    for (int t = a.end - 1; t >= a.first; --t) {
        ring.begin(a, p, t - AHEAD, AHEAD, t - AHEAD >= a.first);
        arrived<AHEAD>();
        float z[EACH][GATES], softmax[EACH][GATES], dz[EACH][GATES], d_dt[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            const Inputs in = ring.read(a, e);
            if (in.begins && p.live[e])
#pragma unroll
                for (int k = 0; k < FIELDS; ++k) {
                    a.d_initial[k][p.of_sequence(a, e)] += d[e][k];
                    d[e][k] = 0.0f;
                }
            d[e][0] += in.d_output;
#pragma unroll
            for (int k = 1; k < FIELDS; ++k)  // few calls have these, so nothing copies them ahead
                if (a.d_output[k] && p.live[e]) d[e][k] += a.d_output[k][p.of_unit(a, t, e)];
            float before[FIELDS], d_vectors[VECTORS + 1];
            d_dt[e] = 0.0f;
#pragma unroll
            for (int k = 0; k < GATES; ++k) {
                softmax[e][k] = in.z[k];
                z[e][k] = Cell::is_row(k) ? in.cumax[k] : in.z[k];
            }
            Cell::backward(z[e], in.state, vector, in.noise, in.dt, d[e], dz[e], before, d_vectors, d_dt[e]);
            if (!in.exists) d_dt[e] = 0.0f;
#pragma unroll
            for (int k = 0; k < GATES; ++k) dz[e][k] = in.exists ? dz[e][k] : 0.0f;
#pragma unroll
            for (int k = 0; k < FIELDS; ++k) d[e][k] = in.exists ? before[k] : d[e][k];
#pragma unroll
            for (int k = 0; k < VECTORS; ++k) d_vector[e][k] += in.exists ? d_vectors[k] : 0.0f;
        }
        ring.next();
        if (CUMAXES) cumax.backward(dz, z, softmax);
#pragma unroll
        for (int e = 0; e < EACH; ++e)
            if (p.live[e])
#pragma unroll
                for (int k = 0; k < RECURRENT; ++k)
                    gradients[(p.lane + LANES * e) * ROWS + k * UNITS + p.local] = dz[e][GATES - RECURRENT + k];
        block_sync();
        float sum[SEQUENCES];
        float4 v[2][SEQUENCES];  // the rows that are multiplied, and the next ones, on their way
#pragma unroll
        for (int b = 0; b < SEQUENCES; ++b) sum[b] = 0.0f, v[0][b] = load4(gradients + b * ROWS);
#pragma unroll
        for (int i = 0; i < ROWS / 4; ++i) {
            if (i + 1 < ROWS / 4)
#pragma unroll
                for (int b = 0; b < SEQUENCES; ++b) v[(i + 1) % 2][b] = load4(gradients + b * ROWS + 4 * (i + 1));
#pragma unroll
            for (int b = 0; b < SEQUENCES; ++b) sum[b] = add_product(w + 4 * i, v[i % 2][b], sum[b]);
        }
        if (column < H)
#pragma unroll
            for (int b = 0; b < SEQUENCES; ++b)
                remote_store(
                    shares + ((here * CLUSTER + p.rank) * SEQUENCES + b) * UNITS + column % UNITS, column / UNITS, sum[b]);
        cluster_arrive();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {  // while the others arrive
            if (!p.live[e]) continue;
#pragma unroll
            for (int k = 0; k < GATES; ++k) a.z[p.of_gate(a, t, e, k)] = dz[e][k];
            if (a.d_dt) a.d_dt[p.of_unit(a, t, e)] = d_dt[e];
        }
        cluster_wait();
#pragma unroll
        for (int e = 0; e < EACH; ++e)
#pragma unroll
            for (int g = 0; g < CLUSTER; ++g)
                if (p.owns) d[e][0] += shares[((here * CLUSTER + g) * SEQUENCES + p.lane + LANES * e) * UNITS + p.local];
        here = 1 - here;
    }
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        if (!p.live[e]) continue;
#pragma unroll
        for (int k = 0; k < FIELDS; ++k) a.d_state[k][p.of_sequence(a, e)] = d[e][k];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k)
            if (a.d_vector[k]) a.d_vector[k][p.of_sequence(a, e)] += d_vector[e][k];
    }
}
