// Products of matrices, and how they are divided among threads and tiles. products.cpp has the code.

#pragma GCC visibility push(hidden)  // each library has its own

// c (rows x WIDTH) = or += a (rows x K) b, in blocks of k so that a block of b stays in the first-level cache. The first
// tile of rows reads a block of b from a slower memory; later tiles find it in the cache. So if there are several tiles,
// the first two prefetch the next block, half each. `next` is what the product after this one reads first, or null. With
// one tile, the products wait for memory all the time, and prefetching would slow them down. Each tile also prefetches
// the sums of the next one. If only the first `columns` of b differ from 0 and these fit one register, the others are left
// out, in nearly half of the time; unless they are accumulated, their sums are set to 0.
constexpr int64_t BLOCK = 256;
template <int width = WIDTH>  // so that code for one width of vectors links only with products of the same width
void product(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
             bool accumulate, const float* next = nullptr, int64_t columns = WIDTH);

// c (rows x WIDTH, contiguous) = or += a (rows x K) b, for at most ROWS rows. Element (i, k) of `a` is a[k * ROWS + i].
// With `next`, K cache lines are prefetched from there meanwhile.
template <int width = WIDTH>
void product_of_packed(int64_t rows, int64_t K, const float* a, const float* b, float* c, bool accumulate,
                       const float* next = nullptr, int64_t columns = WIDTH);

#pragma GCC visibility pop

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The k-th of `parts` nearly equal parts of 0..n.
struct Range {
    int64_t from, to;
    int64_t size() const { return to - from; }
};
static Range part(int64_t n, int64_t k, int64_t parts) { return {n * k / parts, n * (k + 1) / parts}; }
