// Products of matrices, in tiles that fit the registers. They are the same for every cell, so they are compiled once.

#include "vectors.h"
#include "products.h"

// c (R x WIDTH, row stride ldc) = or += a (R x K) b (K x WIDTH, contiguous). Element (i, k) of `a` is a[i * lda + k]
// or, if packed, a[k * ROWS + i]. A tile of few sums cannot hide the latency of an FMA, so UNROLL steps of k have separate
// sums. With `fetch`, the K cache lines at `next` are prefetched meanwhile. N: registers of a row; 1 is half of the width.
template <int R, int N, bool packed, bool fetch>
static void tile(int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool accumulate,
                 const float* next) {
    constexpr int UNROLL = R * N <= 2 ? 4 : R * N <= 6 ? 2 : 1;
    Reg sum[UNROLL][R][N] = {};
    if (accumulate)
        for (int i = 0; i < R; i++)
            for (int n = 0; n < N; n++) sum[0][i][n] = load_reg(c + i * ldc + n * LANES);
    auto step = [&](int64_t k, Reg(&s)[R][N]) __attribute__((always_inline)) {
        if (fetch) soon(next + k * LINE, LINE);
        Reg right[N];
        for (int n = 0; n < N; n++) right[n] = in_register(load_reg(b + k * WIDTH + n * LANES));
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            float x = packed ? a[k * ROWS + i] : a[i * lda + k];
            for (int n = 0; n < N; n++) s[i][n] += x * right[n];
        }
    };
    int64_t k = 0;
    for (; k + UNROLL <= K; k += UNROLL)
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; u++) step(k + u, sum[u]);
    for (; k < K; k++) step(k, sum[0]);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++) {
        for (int n = 0; n < N; n++) {
            for (int u = 1; u < UNROLL; u++) sum[0][i][n] += sum[u][i][n];
            store_reg(c + i * ldc + n * LANES, sum[0][i][n]);
        }
        if (N == 1 && !accumulate) store_reg(c + i * ldc + LANES, Reg{});
    }
}

template <int N, bool packed, bool fetch = false, int R = ROWS>
static void tile_of(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                    bool accumulate, const float* next = nullptr) {
    if (rows == R) return tile<R, N, packed, fetch>(K, a, lda, b, c, ldc, accumulate, next);
    if constexpr (R > 1) tile_of<N, packed, fetch, R - 1>(rows, K, a, lda, b, c, ldc, accumulate, next);
}

template <int N>
static void product_of(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                       bool accumulate, const float* next) {
    int64_t blocks = ceil_div(K, BLOCK), tiles = ceil_div(rows, ROWS);
    if (!rows) return;
    for (int64_t n = 0; n < blocks; n++) {
        Range k = part(K, n, blocks);
        const float* fetched = n + 1 < blocks ? b + k.to * WIDTH : next;
        Range r = part(rows, 0, tiles);
        for (int64_t m = 0; m < tiles; m++) {
            Range later = m + 1 < tiles ? part(rows, m + 1, tiles) : Range{rows, rows};
            const float *left = a + r.from * lda + k.from, *right = b + k.from * WIDTH;
            if (n == 0)
                for (int64_t i = later.from; i < later.to; i++) soon(c + i * ldc);
            if (fetched && tiles > 1 && m < 2)
                tile_of<N, false, true>(r.size(), k.size(), left, lda, right, c + r.from * ldc, ldc, accumulate || n > 0,
                                        fetched + m * k.size() * LINE);
            else
                tile_of<N, false>(r.size(), k.size(), left, lda, right, c + r.from * ldc, ldc, accumulate || n > 0);
            r = later;
        }
    }
}

template <int width>
void product(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
             bool accumulate, const float* next, int64_t columns) {
    if (columns <= LANES) return product_of<1>(rows, K, a, lda, b, c, ldc, accumulate, next);
    product_of<2>(rows, K, a, lda, b, c, ldc, accumulate, next);
}

template <int width>
void product_of_packed(int64_t rows, int64_t K, const float* a, const float* b, float* c, bool accumulate,
                       const float* next, int64_t columns) {
    bool narrow = columns <= LANES;
    if (next && narrow) return tile_of<1, true, true>(rows, K, a, 0, b, c, WIDTH, accumulate, next);
    if (next) return tile_of<2, true, true>(rows, K, a, 0, b, c, WIDTH, accumulate, next);
    if (narrow) return tile_of<1, true>(rows, K, a, 0, b, c, WIDTH, accumulate);
    tile_of<2, true>(rows, K, a, 0, b, c, WIDTH, accumulate);
}

template void product<WIDTH>(int64_t, int64_t, const float*, int64_t, const float*, float*, int64_t, bool,
                             const float*, int64_t);
template void product_of_packed<WIDTH>(int64_t, int64_t, const float*, const float*, float*, bool, const float*,
                                       int64_t);
