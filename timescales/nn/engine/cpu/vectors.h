// Vectors of WIDTH units and the functions of a cell's equations, for loop.cpp and the cells that it includes.
//
// Special instructions and mathematical functions are called by the compiler's own names (__builtin_...). The headers that
// declare other names for them, such as <immintrin.h>, would take two fifths of the time to compile a library.

#include <cstdint>
#include <cstring>

#ifndef __has_builtin  // GCC before 10, which has all that are asked for here
#define __has_builtin(name) 1
#endif

// One matrix tile keeps ROWS x 2 vectors of sums in registers; the rest of the registers hold the operands.
#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int WIDTH = 2 * LANES;  // units per group, columns per tile
constexpr int LINE = 16;          // floats per cache line

typedef float Reg __attribute__((vector_size(4 * LANES)));
typedef int32_t Int __attribute__((vector_size(4 * LANES)));

#define INLINE inline __attribute__((always_inline))

static INLINE Reg spread(float x) { return Reg{} + x; }

// WIDTH units in two registers. Each operation of the pointwise equations needs the result of the one before it, so
// with two registers the processor can work on one while it waits for the other.
struct Vec {
    Reg r[2];
};
#define OPERATOR(op)                                                                                           \
    static INLINE Vec operator op(const Vec& x, const Vec& y) { return {x.r[0] op y.r[0], x.r[1] op y.r[1]}; } \
    static INLINE Vec operator op(const Vec& x, float y) { return {x.r[0] op y, x.r[1] op y}; }                \
    static INLINE Vec operator op(float x, const Vec& y) { return {x op y.r[0], x op y.r[1]}; }
OPERATOR(+)
OPERATOR(-)
OPERATOR(*)
OPERATOR(/)
#undef OPERATOR
static INLINE Vec operator-(const Vec& x) { return {-x.r[0], -x.r[1]}; }

static INLINE Reg load_reg(const float* p) {
    Reg v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
// Return the same value, read from memory once. Without this, compilers may load it again for every use.
static INLINE Reg in_register(Reg v) {
#if defined(__SSE__)
    asm("" : "+v"(v));
#endif
    return v;
}
static INLINE void store_reg(float* p, Reg v) { std::memcpy(p, &v, sizeof v); }
static INLINE Vec load(const float* p) { return {load_reg(p), load_reg(p + LANES)}; }
static INLINE void store(float* p, const Vec& v) { store_reg(p, v.r[0]), store_reg(p + LANES, v.r[1]); }

// The last group of a row of H numbers may be incomplete: only the first `n` of its numbers exist.
static INLINE Int first_lanes(int64_t n) {  // true for the first n lanes
    Int lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane < (int32_t)n;
}
static INLINE Reg load_cut_reg(const float* p, int64_t n) {
    if (n >= LANES) return load_reg(p);
    if (n <= 0) return Reg{};
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_loadups512_mask)
    return __builtin_ia32_loadups512_mask(p, Reg{}, (unsigned short)((1u << n) - 1));
#elif defined(__AVX__) && !defined(__AVX512F__) && __has_builtin(__builtin_ia32_maskloadps256)
    return __builtin_ia32_maskloadps256((const Reg*)p, first_lanes(n));
#else
    Reg whole = {};
    std::memcpy(&whole, p, n * sizeof(float));
    return whole;
#endif
}
static INLINE void store_cut_reg(float* p, Reg v, int64_t n) {
    if (n >= LANES) return store_reg(p, v);
    if (n <= 0) return;
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_storeups512_mask)
    __builtin_ia32_storeups512_mask(p, v, (unsigned short)((1u << n) - 1));
#elif defined(__AVX__) && !defined(__AVX512F__) && __has_builtin(__builtin_ia32_maskstoreps256)
    __builtin_ia32_maskstoreps256((Reg*)p, first_lanes(n), v);
#else
    std::memcpy(p, &v, n * sizeof(float));
#endif
}
// Not inlined, since the loops run faster without this code inside them.
static __attribute__((noinline)) Vec load_part(const float* p, int64_t n) {
    return {load_cut_reg(p, n), load_cut_reg(p + LANES, n - LANES)};
}
static __attribute__((noinline)) void store_part(float* p, const Vec& v, int64_t n) {
    store_cut_reg(p, v.r[0], n), store_cut_reg(p + LANES, v.r[1], n - LANES);
}
static INLINE Vec load_cut(const float* p, int64_t n) {
    return __builtin_expect(n >= WIDTH, 1) ? load(p) : load_part(p, n);
}
static INLINE void store_cut(float* p, const Vec& v, int64_t n) {
    if (__builtin_expect(n >= WIDTH, 1)) return store(p, v);
    store_part(p, v, n);
}

// Prefetch n numbers. Backward and the weight gradients read more memory than the first caches hold, in an order that
// the processor does not predict.
static INLINE void soon(const float* p, int n = WIDTH) {
    for (int i = 0; i < n; i += LINE) __builtin_prefetch(p + i, 0, 2);
}

static INLINE Int bits(Reg v) { return (Int)v; }
static INLINE Reg real(Int i) { return (Reg)i; }

// a > b ? a : b and a < b ? a : b, so b if one is NaN. Compilers do not recognise the instruction.
#if defined(__AVX512F__) && __has_builtin(__builtin_ia32_maxps512_mask)
static INLINE Reg maximum(Reg a, Reg b) { return __builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4); }
static INLINE Reg minimum(Reg a, Reg b) { return __builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4); }
#elif defined(__AVX512F__) && __has_builtin(__builtin_ia32_maxps512)
static INLINE Reg maximum(Reg a, Reg b) { return __builtin_ia32_maxps512(a, b, 4); }
static INLINE Reg minimum(Reg a, Reg b) { return __builtin_ia32_minps512(a, b, 4); }
#elif defined(__AVX__) && !defined(__AVX512F__) && __has_builtin(__builtin_ia32_maxps256)
static INLINE Reg maximum(Reg a, Reg b) { return __builtin_ia32_maxps256(a, b); }
static INLINE Reg minimum(Reg a, Reg b) { return __builtin_ia32_minps256(a, b); }
#else
static INLINE Reg maximum(Reg a, Reg b) { return a > b ? a : b; }
static INLINE Reg minimum(Reg a, Reg b) { return a < b ? a : b; }
#endif
static INLINE Reg clamp(Reg x, float low, float high) { return minimum(spread(high), maximum(spread(low), x)); }

// exp(t) - 1 by a polynomial, to a few units in the last place, where x = n ln 2 + t with a whole n and |t| <= ln(2)/2.
static INLINE Reg exponential_of_remainder(Reg x, Int& n) {
    const float magic = 12582912.0f;  // 1.5 * 2^23, whose bits are 0x4B400000: adding it rounds to a whole number
    Reg shifted = x * 1.44269504f + magic;
    Reg whole = shifted - magic;
    Reg t = (x - whole * 0.693145752f) - whole * 1.42860677e-6f, tt = t * t;
    Reg poly = (0.00138825073f * tt + (0.00836658012f * t + 0.0416672006f)) * tt + (0.166665435f * t + 0.49999997f);
    n = bits(shifted) - 0x4B400000;
    return poly * tt + t;
}

// exp(x) and exp(x) - 1. Both are needed, since 1 - f must not be computed from a rounded f when f is close to 1. |x| must
// be at most 87, which avoids infinities and denormals.
static INLINE void exponential(Reg x, Reg& value, Reg& minus_one) {
    Int n;
    Reg small = exponential_of_remainder(x, n), scale = real((n + 127) << 23);  // scale is 2^n
    value = scale * small + scale;
    minus_one = scale * small + (scale - 1.0f);
}

// The logarithm of a finite u > 0, given that u = 1 + x: x is more exact than u - 1 if u is close to 1. The relative error
// is a few 1e-7. u = 2^e (1 + f), and f = x if e = 0.
static INLINE Reg log_of_finite(Reg u, Reg x) {
    Int root = Int{} + 0x3F3504F3;  // sqrt(1/2): 1 + f is in [sqrt(1/2), sqrt(2))
    Int offset = bits(u) - root, e = offset >> 23;
    Reg f = real((offset & 0x7FFFFF) + root) - 1.0f;
    f = (e == 0) ? x : f;
    Reg exponent = __builtin_convertvector(e, Reg), ff = f * f;
    Reg low = (-0.166233569f * f + 0.200012267f) * ff + (-0.250008225f * f + 0.333333313f);
    Reg high = (-0.0763442963f * f + 0.127615497f) * ff + (-0.131601945f * f + 0.142017618f);
    Reg poly = high * (ff * ff) + low;
    return exponent * 0.693145752f + (exponent * 1.42860677e-6f + ((poly * f - 0.5f) * ff + f));
}
constexpr float INFINITE = __builtin_inff();

// The same for any u. Zero, negative numbers, infinity and NaN are handled last, since their bits would give a number.
static INLINE Reg log_of(Reg u, Reg x) {
    // Infinity and NaN stay what they are.
    Reg other = (u == 0.0f) ? spread(-INFINITE) : (u < 0.0f) ? spread(__builtin_nanf("")) : u;
    return (u > 0.0f) & (u < INFINITE) ? log_of_finite(u, x) : other;
}
static INLINE Reg log_one_plus(Reg x) { return log_of(x + 1.0f, x); }
static INLINE Reg logarithm(Reg x) { return log_of(x, x - 1.0f); }

// exp(x) and exp(x) - 1 of any x, for the equations of a cell. 2^n is made of two factors, since 2^128 is no float, but
// exp(88.7) is one. Overflow gives infinity, underflow 0.
static INLINE void any_exponential(Reg x, Reg& value, Reg& minus_one) {
    Int n;
    Reg small = exponential_of_remainder(clamp(x, -104.0f, 89.0f), n);
    Int half = n >> 1, rest = n - half;
    Reg first = real((127 + half) << 23), second = real((127 + rest) << 23), inverse = real((127 - rest) << 23);
    value = (first * small + first) * second;
    minus_one = (first * small + (first - inverse)) * second;
}
static INLINE Reg exp_of(Reg x) {
    Reg value, minus_one;
    any_exponential(x, value, minus_one);
    return value;
}
static INLINE Reg exp_minus_one(Reg x) {
    Reg value, minus_one;
    any_exponential(x, value, minus_one);
    return minus_one;
}
static INLINE Reg finite_exp(Reg x) {
    Reg value, minus_one;
    exponential(clamp(x, -87.0f, 87.0f), value, minus_one);
    return value;
}
static INLINE Reg sigmoid(Reg x) { return 1.0f / (1.0f + finite_exp(-x)); }
static INLINE Reg hyperbolic_tangent(Reg x) {
    Reg e, minus_one;
    exponential(2.0f * clamp(x, -20.0f, 20.0f), e, minus_one);
    return minus_one / (minus_one + 2.0f);
}
// sin(x + quarters pi / 2), to a few 1e-7: x = n pi/2 + t, |t| <= pi/4, and a polynomial in t. Large numbers, whose
// remainder needs more digits, are left to the library.
static INLINE Reg sine_from(Reg x, int quarters) {
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    Reg shifted = x * 0.636619772f + magic;
    Reg n = shifted - magic;
    Reg t = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f, tt = t * t;
    Reg sine = ((-1.95152959e-4f * tt + 8.33216087e-3f) * tt - 1.66666546e-1f) * tt * t + t;
    Reg cosine = ((2.44331571e-5f * tt - 1.38873163e-3f) * tt + 4.16666457e-2f) * tt * tt - 0.5f * tt + 1.0f;
    Int quadrant = bits(shifted) + quarters;
    Reg value = (quadrant & 1) == 0 ? sine : cosine;
    value = real(bits(value) ^ ((quadrant & 2) << 30));
    Int rest = ~((x > -8192.0f) & (x < 8192.0f));
    for (int i = 0; i < LANES; i++)
        if (__builtin_expect(rest[i], 0)) value[i] = quarters ? __builtin_cosf(x[i]) : __builtin_sinf(x[i]);
    return value;
}
static INLINE Reg sine(Reg x) { return sine_from(x, 0); }
static INLINE Reg cosine(Reg x) { return sine_from(x, 1); }
template <int N>
static INLINE Reg polynomial(const float (&c)[N], Reg x) {
    Reg sum = spread(c[N - 1]);
    for (int i = N - 2; i >= 0; i--) sum = sum * x + c[i];
    return sum;
}
// erf(x), to a few 1e-7 of its value: up to 1 by a polynomial for erf(x) / x in x^2, up to 4, from where it is 1, by one
// for the logarithm of 1 - erf(x). Both were fitted to the largest relative error of erf.
static INLINE Reg error_function(Reg x) {
    constexpr float RATIO[] = {1.12837917f, -0.376126258f, 0.112835851f, -0.0268538119f, 0.00518832756f, -0.000801019255f, 7.85385779e-05f};
    constexpr float LOG[] = {0.000188467844f, -1.12958031f, -0.633216394f, -0.108422103f, 0.0252103426f, -0.00420528602f, 0.00044147294f, -2.16976409e-05f};
    Reg size = minimum(spread(4.0f), real(bits(x) & 0x7FFFFFFF));
    Reg value = (size < 1.0f) ? size * polynomial(RATIO, size * size) : 1.0f - exp_of(polynomial(LOG, size));
    return real(bits(value) | (bits(x) & (int32_t)0x80000000));
}
static INLINE Reg round_down(Reg x) {
    for (int i = 0; i < LANES; i++) x[i] = __builtin_floorf(x[i]);
    return x;
}
static INLINE Reg absolute(Reg x) { return real(bits(x) & 0x7FFFFFFF); }
static INLINE Reg sign(Reg x) {
    Reg value = (x > 0.0f) ? spread(1.0f) : (x < 0.0f) ? spread(-1.0f) : Reg{};
    return (x == x) ? value : x;
}
static INLINE Reg square_root(Reg x) {
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
}
// x^y. The vector path is exact to a few units in the last place times |y log x|; other cases are left to the library.
static INLINE Reg power(Reg x, Reg y) {
    Reg value = exp_of(y * logarithm(x));
    Int rest = ~((x > 0.0f) & (x < INFINITE));
    for (int i = 0; i < LANES; i++)
        if (__builtin_expect(rest[i], 0)) value[i] = __builtin_powf(x[i], y[i]);
    return value;
}
// Numbers that the weight gradients read are flushed to zero far above the denormals, so that their products are not
// denormal either.
static INLINE Reg flushed(Reg v) { return (maximum(v, -v) < 1e-30f) ? Reg{} : v; }

#define FUNCTION(name) \
    static INLINE Vec name(const Vec& x) { return {name(x.r[0]), name(x.r[1])}; }
FUNCTION(exp_of)
FUNCTION(exp_minus_one)
FUNCTION(finite_exp)
FUNCTION(log_one_plus)
FUNCTION(logarithm)
FUNCTION(sigmoid)
FUNCTION(hyperbolic_tangent)
FUNCTION(sine)
FUNCTION(cosine)
FUNCTION(error_function)
FUNCTION(round_down)
FUNCTION(absolute)
FUNCTION(sign)
FUNCTION(square_root)
FUNCTION(flushed)
#undef FUNCTION
#define FUNCTION(name) \
    static INLINE Vec name(const Vec& x, const Vec& y) { return {name(x.r[0], y.r[0]), name(x.r[1], y.r[1])}; }
FUNCTION(maximum)
FUNCTION(minimum)
FUNCTION(power)
#undef FUNCTION

static INLINE Vec spread_vec(float x) { return {spread(x), spread(x)}; }

// sigmoid(x) and sigmoid(-x). Both keep their digits, however close to 0 they are.
static INLINE void both_sigmoids(const Vec& x, Vec& plus, Vec& minus) {
    for (int i = 0; i < 2; i++) {
        Reg e = finite_exp(-x.r[i]);
        plus.r[i] = 1.0f / (1.0f + e);
        minus.r[i] = e * plus.r[i];
    }
}

// WIDTH truth values.
struct Mask {
    Int r[2];
};
#define OPERATOR(op)                                                                                            \
    static INLINE Mask operator op(const Vec& x, const Vec& y) { return {x.r[0] op y.r[0], x.r[1] op y.r[1]}; }
OPERATOR(>)
OPERATOR(>=)
OPERATOR(<)
OPERATOR(<=)
OPERATOR(==)
OPERATOR(!=)
#undef OPERATOR
static INLINE Mask operator&(const Mask& x, const Mask& y) { return {x.r[0] & y.r[0], x.r[1] & y.r[1]}; }
static INLINE Mask operator|(const Mask& x, const Mask& y) { return {x.r[0] | y.r[0], x.r[1] | y.r[1]}; }
static INLINE Mask operator~(const Mask& x) { return {~x.r[0], ~x.r[1]}; }
static INLINE Vec select(const Mask& which, const Vec& yes, const Vec& no) {
    return {which.r[0] ? yes.r[0] : no.r[0], which.r[1] ? yes.r[1] : no.r[1]};
}

// The first n numbers, and zeros.
static INLINE Vec cut(const Vec& v, int64_t n) {
    if (n >= WIDTH) return v;
    return {first_lanes(n) ? v.r[0] : Reg{}, first_lanes(n - LANES) ? v.r[1] : Reg{}};
}
static INLINE float total(const Vec& v) {
    float sum = 0.0f;
    for (int i = 0; i < 2 * LANES; i++) sum += v.r[i / LANES][i % LANES];
    return sum;
}
