struct Cell {
    static constexpr int X_ONLY = 0, SUMS = 3, H_ONLY = 0, FIELDS = 3,
                         VECTORS = 1, NOISES = 0, MEANS = 0, KEPT = 0;
    static constexpr bool READS_H = false, TIMED = false;
    static constexpr int gate(int block) { return block == 0 ? 0 : block == 1 ? 1 : 2; }
    static constexpr int divisor(int gate) { return 1; }
    static constexpr bool is_row(int block) { return 0; }
    static INLINE void forward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt, Vec* now) {
        Vec v11 = sigmoid(z[2]);
        Vec v12, v13;
        both_sigmoids(z[0], v12, v13);
        Vec v14 = v12 + v13;
        Vec v15 = v14 - 0.001f;
        Vec v16 = state[2] + 1.0f;
        Vec v17 = v13 * v16;
        Vec v18 = v12 * 0.0f;
        Vec v19 = v17 + v18;
        Vec v20 = v19 + 0.001f;
        Vec v21 = v15 / v20;
        Vec v22 = log_one_plus(v21);
        Vec v23 = maximum(spread_vec(0.0f), v22);
        Vec v24 = -v23;
        Vec v25 = vector[0] * v24;
        Vec v26 = exp_of(v25);
        Vec v27 = v26 * state[1];
        Vec v28 = exp_minus_one(v25);
        Vec v29 = -v28;
        Vec v30 = hyperbolic_tangent(z[1]);
        Vec v31 = v29 * v30;
        Vec v32 = v27 + v31;
        Vec v33 = hyperbolic_tangent(v32);
        Vec v34 = v11 * v33;
        now[0] = v34;
        now[1] = v32;
        now[2] = v19;
    }
    static INLINE void backward(const Vec* z, const Vec* state, const Vec* vector, const Vec* noise, const Vec& dt,
                                const Vec* d, Vec* dz, Vec* dstate, Vec* dvector, Vec& ddt) {
        Vec v11 = d[2] * 0.0f;
        Vec v12, v13;
        both_sigmoids(z[0], v12, v13);
        Vec v14 = v12 + v13;
        Vec v15 = v14 - 0.001f;
        Vec v16 = state[2] + 1.0f;
        Vec v17 = v13 * v16;
        Vec v18 = v12 * 0.0f;
        Vec v19 = v17 + v18;
        Vec v20 = v19 + 0.001f;
        Vec v21 = v15 / v20;
        Vec v22 = log_one_plus(v21);
        Mask v23 = v22 >= spread_vec(0.0f);
        Vec v24, v25;
        both_sigmoids(z[2], v24, v25);
        Vec v26 = d[0] * v24;
        Vec v27 = maximum(spread_vec(0.0f), v22);
        Vec v28 = -v27;
        Vec v29 = vector[0] * v28;
        Vec v30 = exp_of(v29);
        Vec v31 = v30 * state[1];
        Vec v32 = exp_minus_one(v29);
        Vec v33 = -v32;
        Vec v34 = hyperbolic_tangent(z[1]);
        Vec v35 = v33 * v34;
        Vec v36 = v31 + v35;
        Vec v37 = hyperbolic_tangent(v36);
        Vec v38 = v37 * v37;
        Vec v39 = 1.0f - v38;
        Vec v40 = v26 * v39;
        Vec v41 = d[1] + v40;
        Vec v42 = v41 * v34;
        Vec v43 = -v42;
        Vec v44 = v32 + 1.0f;
        Vec v45 = v43 * v44;
        Vec v46 = v41 * state[1];
        Vec v47 = v46 * v30;
        Vec v48 = v45 + v47;
        Vec v49 = v48 * vector[0];
        Vec v50 = -v49;
        Vec v51 = select(v23, v50, spread_vec(0.0f));
        Vec v52 = v21 + 1.0f;
        Vec v53 = v51 / v52;
        Vec v54 = v53 / v20;
        Vec v55 = v11 + v54;
        Vec v56 = -v53;
        Vec v57 = v21 / v20;
        Vec v58 = v56 * v57;
        Vec v59 = v58 * 0.0f;
        Vec v60 = v55 + v59;
        Vec v61 = v60 * v12;
        Vec v62 = v61 * v13;
        Vec v63 = d[2] * v16;
        Vec v64 = v63 + v54;
        Vec v65 = v58 * v16;
        Vec v66 = v64 + v65;
        Vec v67 = v66 * v13;
        Vec v68 = v67 * v12;
        Vec v69 = v62 - v68;
        Vec v70 = v41 * v33;
        Vec v71 = v34 * v34;
        Vec v72 = 1.0f - v71;
        Vec v73 = v70 * v72;
        Vec v74 = d[0] * v37;
        Vec v75 = v74 * v24;
        Vec v76 = v75 * v25;
        Vec v77 = v41 * v30;
        Vec v78 = d[2] * v13;
        Vec v79 = v58 * v13;
        Vec v80 = v78 + v79;
        Vec v81 = v48 * v28;
        dz[0] = v69;
        dz[1] = v73;
        dz[2] = v76;
        dstate[0] = spread_vec(0.0f);
        dstate[1] = v77;
        dstate[2] = v80;
        dvector[0] = v81;
    }
    static constexpr int FORWARD_STAGES = 0, STAGES = 0;
    static constexpr int means_until(int stage) { return 0; }
    static constexpr int kept_until(int stage) { return 0; }
};
