struct Cell {
    static constexpr int X_ONLY = 1, SUMS = 2, H_ONLY = 1, FIELDS = 1,
                         VECTORS = 0, NOISES = 0, MEANS = 0, KEPT = 0;
    static constexpr bool READS_H = true, TIMED = false;
    static constexpr int gate(int block) { return block == 0 ? 2 : block == 1 ? 0 : block == 2 ? 1 : 2; }
    static constexpr int divisor(int gate) { return 1; }
    static constexpr bool is_row(int block) { return 0; }
    static INLINE void forward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt, Vec* now) {
        Vec v7, v8;
        both_sigmoids(z[2], v7, v8);
        Vec v9 = v7 * state[0];
        Vec v10 = sigmoid(z[1]);
        Vec v11 = v10 * z[3];
        Vec v12 = z[0] + v11;
        Vec v13 = hyperbolic_tangent(v12);
        Vec v14 = v8 * v13;
        Vec v15 = v9 + v14;
        now[0] = v15;
    }
    static INLINE void backward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt,
                                const Vec* d, Vec* dz, Vec* dstate, Vec* dvector, Vec& ddt) {
        Vec v7 = -z[2];
        Vec v8, v9;
        both_sigmoids(v7, v8, v9);
        Vec v10 = d[0] * v8;
        Vec v11, v12;
        both_sigmoids(z[1], v11, v12);
        Vec v13 = v11 * z[3];
        Vec v14 = z[0] + v13;
        Vec v15 = hyperbolic_tangent(v14);
        Vec v16 = v15 * v15;
        Vec v17 = 1.0f - v16;
        Vec v18 = v10 * v17;
        Vec v19 = v18 * z[3];
        Vec v20 = v19 * v11;
        Vec v21 = v20 * v12;
        Vec v22 = d[0] * state[0];
        Vec v23 = d[0] * v15;
        Vec v24 = v22 - v23;
        Vec v25 = v24 * v9;
        Vec v26 = v25 * v8;
        Vec v27 = v18 * v11;
        Vec v28 = d[0] * v9;
        dz[0] = v18;
        dz[1] = v21;
        dz[2] = v26;
        dz[3] = v27;
        dstate[0] = v28;
    }
    static constexpr int FORWARD_STAGES = 0, STAGES = 0;
    static constexpr int means_until(int stage) { return 0; }
    static constexpr int kept_until(int stage) { return 0; }
};
