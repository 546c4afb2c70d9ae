// The threads of the loops, and their treatment of denormal numbers.

#ifdef _OPENMP
#include <omp.h>
#endif

// Products of denormal numbers are very slow, and vanishing gradients have many. While a Flush exists, they are zero.
struct Flush {
#if defined(__SSE__)
    unsigned before = __builtin_ia32_stmxcsr();
    Flush() { __builtin_ia32_ldmxcsr(before | 0x8040); }  // flush to zero, denormals are zero
    ~Flush() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    Flush() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" ::"r"(before | 1u << 24));  // flush to zero
    }
    ~Flush() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

static int thread_number() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}
static int team_size() {
#ifdef _OPENMP
    return omp_get_num_threads();
#else
    return 1;
#endif
}
static void barrier() {
#pragma omp barrier
}
