struct Cell {
    static constexpr int X_ONLY = 0, SUMS = 4, H_ONLY = 0, FIELDS = 2,
                         VECTORS = 0, NOISES = 0, MEANS = 0, KEPT = 0;
    static constexpr bool READS_H = false, TIMED = false;
    static constexpr int gate(int block) { return block == 0 ? 0 : block == 1 ? 1 : block == 2 ? 2 : 3; }
    static constexpr int divisor(int gate) { return 1; }
    static constexpr bool is_row(int block) { return 0; }
    static INLINE void forward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt, Vec* now) {
        Vec v9 = sigmoid(z[3]);
        Vec v10 = sigmoid(z[1]);
        Vec v11 = v10 * state[1];
        Vec v12 = sigmoid(z[0]);
        Vec v13 = hyperbolic_tangent(z[2]);
        Vec v14 = v12 * v13;
        Vec v15 = v11 + v14;
        Vec v16 = hyperbolic_tangent(v15);
        Vec v17 = v9 * v16;
        now[0] = v17;
        now[1] = v15;
    }
    static INLINE void backward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt,
                                const Vec* d, Vec* dz, Vec* dstate, Vec* dvector, Vec& ddt) {
        Vec v9, v10;
        both_sigmoids(z[3], v9, v10);
        Vec v11 = d[0] * v9;
        Vec v12, v13;
        both_sigmoids(z[1], v12, v13);
        Vec v14 = v12 * state[1];
        Vec v15, v16;
        both_sigmoids(z[0], v15, v16);
        Vec v17 = hyperbolic_tangent(z[2]);
        Vec v18 = v15 * v17;
        Vec v19 = v14 + v18;
        Vec v20 = hyperbolic_tangent(v19);
        Vec v21 = v20 * v20;
        Vec v22 = 1.0f - v21;
        Vec v23 = v11 * v22;
        Vec v24 = d[1] + v23;
        Vec v25 = v24 * v17;
        Vec v26 = v25 * v15;
        Vec v27 = v26 * v16;
        Vec v28 = v24 * state[1];
        Vec v29 = v28 * v12;
        Vec v30 = v29 * v13;
        Vec v31 = v24 * v15;
        Vec v32 = v17 * v17;
        Vec v33 = 1.0f - v32;
        Vec v34 = v31 * v33;
        Vec v35 = d[0] * v20;
        Vec v36 = v35 * v9;
        Vec v37 = v36 * v10;
        Vec v38 = v24 * v12;
        dz[0] = v27;
        dz[1] = v30;
        dz[2] = v34;
        dz[3] = v37;
        dstate[0] = spread_vec(0.0f);
        dstate[1] = v38;
    }
    static constexpr int FORWARD_STAGES = 0, STAGES = 0;
    static constexpr int means_until(int stage) { return 0; }
    static constexpr int kept_until(int stage) { return 0; }
};
