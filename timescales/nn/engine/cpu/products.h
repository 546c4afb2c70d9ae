// Products of matrices, and the parts that threads and tiles have of them. products.cpp has the code.

#pragma GCC visibility push(hidden)  // each library has its own

// c (rows x WIDTH) = or += a (rows x K) b, in blocks of k so that a block of b stays in the first-level cache. The first
// tile of rows reads a block of b from far away, the others find it there. So where there are others, the first two fetch
// the next block, half each; `next` is what the product after this one reads first, or null. With one tile, the products
// wait for memory all the time, and fetching would be in their way. Each tile also fetches the sums of the next one.
constexpr int64_t BLOCK = 256;
template <int width = WIDTH>  // so that code for one width of vectors links with products of the same width alone
void product(int64_t rows, int64_t K, const float* a, int64_t lda, const float* b, float* c, int64_t ldc,
             bool accumulate, const float* next = nullptr);

// c (rows x WIDTH, contiguous) = or += a (rows x K) b, for at most ROWS rows. Element (i, k) of `a` is a[k * ROWS + i].
// With `next`, K cache lines are fetched from there meanwhile.
template <int width = WIDTH>
void product_of_packed(int64_t rows, int64_t K, const float* a, const float* b, float* c, bool accumulate,
                       const float* next = nullptr);

#pragma GCC visibility pop

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The k-th of `parts` nearly equal parts of 0..n.
struct Range {
    int64_t from, to;
    int64_t size() const { return to - from; }
};
static Range part(int64_t n, int64_t k, int64_t parts) { return {n * k / parts, n * (k + 1) / parts}; }
