// Products of matrices, in tiles that fit the registers. They are the same for every cell, so they are compiled once.

#include "vectors.h"
#include "products.h"

// c (R x WIDTH, row stride ldc) = or += a (R x K) b (K x WIDTH, contiguous). Element (i, k) of `a` is a[i * lda + k]
// or, if packed, a[k * ROWS + i]. A tile of few rows has too few sums to hide the latency of an FMA, so UNROLL steps
// of k have separate sums. With `fetch`, the K cache lines at `next` are prefetched meanwhile.
template <int R, bool packed, bool fetch>
static void tile(int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc, bool accumulate,
                 const float* next) {
    constexpr int UNROLL = R == 1 ? 4 : R <= 3 ? 2 : 1;
    Reg sum[UNROLL][R][2] = {};
    if (accumulate)
        for (int i = 0; i < R; i++) sum[0][i][0] = load_reg(c + i * ldc), sum[0][i][1] = load_reg(c + i * ldc + LANES);
    auto step = [&](int64_t k, Reg(&s)[R][2]) __attribute__((always_inline)) {
        if (fetch) soon(next + k * LINE, LINE);
        Reg b0 = in_register(load_reg(b + k * WIDTH)), b1 = in_register(load_reg(b + k * WIDTH + LANES));
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            float x = packed ? a[k * ROWS + i] : a[i * lda + k];
            s[i][0] += x * b0;
            s[i][1] += x * b1;
        }
    };
    int64_t k = 0;
    for (; k + UNROLL <= K; k += UNROLL)
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; u++) step(k + u, sum[u]);
    for (; k < K; k++) step(k, sum[0]);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++) {
        for (int u = 1; u < UNROLL; u++) sum[0][i][0] += sum[u][i][0], sum[0][i][1] += sum[u][i][1];
        store_reg(c + i * ldc, sum[0][i][0]);
        store_reg(c + i * ldc + LANES, sum[0][i][1]);
    }
}

template <bool packed, bool fetch = false, int R = ROWS>
static void tile_of(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
                    bool accumulate, const float* next = nullptr) {
    if (rows == R) return tile<R, packed, fetch>(K, a, lda, b, c, ldc, accumulate, next);
    if constexpr (R > 1) tile_of<packed, fetch, R - 1>(rows, K, a, lda, b, c, ldc, accumulate, next);
}

template <int width>
void product(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
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
                tile_of<false, true>(r.size(), k.size(), left, lda, right, c + r.from * ldc, ldc, accumulate || n > 0,
                                     fetched + m * k.size() * LINE);
            else
                tile_of<false>(r.size(), k.size(), left, lda, right, c + r.from * ldc, ldc, accumulate || n > 0);
            r = later;
        }
    }
}

template <int width>
void product_of_packed(int64_t rows, int64_t K, const float* a, const float* b, float* c, bool accumulate,
                       const float* next) {
    if (next) return tile_of<true, true>(rows, K, a, 0, b, c, WIDTH, accumulate, next);
    tile_of<true>(rows, K, a, 0, b, c, WIDTH, accumulate);
}

template void product<WIDTH>(int64_t, int64_t, const float*, int64_t, const float*, float*, int64_t, bool,
                             const float*);
template void product_of_packed<WIDTH>(int64_t, int64_t, const float*, const float*, float*, bool, const float*);
