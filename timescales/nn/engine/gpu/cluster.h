// What the kernels of cluster.cu and a cell's equations call. Three compilers read it: NVRTC and nvcc, and g++ with
// ON_CPU, for which cluster_on_cpu.h has the same functions of a GPU.
#ifdef ON_CPU
#include "cluster_on_cpu.h"
#else
#define DEVICE __device__ __forceinline__
#define SHARED(name, numbers) __shared__ __align__(16) float name[numbers]

DEVICE int cluster_rank() {
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// The barrier of a cluster in two halves: what a thread wrote to shared memory before `arrive`, all see after `wait`.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void block_sync() { __syncthreads(); }

DEVICE unsigned address_in_shared(const float* p) { return (unsigned)__cvta_generic_to_shared(p); }
// Store to the same variable in another thread block of the cluster.
DEVICE void remote_store(float* p, int rank, float value) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_in_shared(p)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}
// Four numbers of shared memory. Volatile: the compiler would move all loads of a long product to its beginning, where
// there are not enough registers for them.
DEVICE float4 load4(const float* p) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address_in_shared(p)));
    return v;
}
// A copy from global to shared memory, which nobody waits for until `arrived`. A load into a register would hold up
// loads from shared memory, since a warp can tell only six groups of loads apart.
DEVICE void fetch(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_in_shared(to)), "l"(from) : "memory");
}
DEVICE void end_of_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until at most `groups` of this thread's latest groups of copies are on their way.
template <int groups>
DEVICE void arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
DEVICE float exchange(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE float reciprocal(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
#endif

// The words of a cell's equations, which emit_cpp.py writes. On a CPU they are in vectors.h, where a Vec has many units;
// here it has one.
#define INLINE DEVICE
typedef float Vec;
struct Mask {
    bool is_true;
    DEVICE Mask(bool value) : is_true(value) {}
};
INLINE Mask operator&(Mask a, Mask b) { return a.is_true && b.is_true; }
INLINE Mask operator|(Mask a, Mask b) { return a.is_true || b.is_true; }
INLINE Mask operator~(Mask a) { return !a.is_true; }
INLINE Vec select(Mask condition, Vec a, Vec b) { return condition.is_true ? a : b; }
INLINE Vec spread_vec(float x) { return x; }
INLINE Vec absolute(Vec x) { return fabsf(x); }
INLINE Vec sign(Vec x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
INLINE Vec square_root(Vec x) { return sqrtf(x); }
INLINE Vec exp_of(Vec x) { return expf(x); }
INLINE Vec exp_minus_one(Vec x) { return expm1f(x); }
INLINE Vec logarithm(Vec x) { return logf(x); }
INLINE Vec log_one_plus(Vec x) { return log1pf(x); }
INLINE Vec sigmoid(Vec x) { return reciprocal(1.0f + expf(-x)); }
INLINE void both_sigmoids(Vec x, Vec& plus, Vec& minus) {  // of x and -x; both keep their digits
    const float e = expf(-fabsf(x)), large = reciprocal(1.0f + e), small = e * large;
    plus = x < 0.0f ? small : large;
    minus = x < 0.0f ? large : small;
}
INLINE Vec hyperbolic_tangent(Vec x) { return tanhf(x); }
INLINE Vec sine(Vec x) { return sinf(x); }
INLINE Vec cosine(Vec x) { return cosf(x); }
INLINE Vec error_function(Vec x) { return erff(x); }
INLINE Vec round_down(Vec x) { return floorf(x); }
INLINE Vec power(Vec x, Vec y) { return powf(x, y); }
INLINE Vec maximum(Vec a, Vec b) { return a > b ? a : b; }  // b if one is not a number
INLINE Vec minimum(Vec a, Vec b) { return a < b ? a : b; }
