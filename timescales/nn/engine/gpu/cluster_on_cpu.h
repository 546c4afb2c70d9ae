// What cluster.h needs of a GPU, on a CPU: the threads of a cluster are fibers of one thread, so a kernel runs as it is
// written, and faults show that a GPU would show rarely or never:
//
//   a missing barrier         fibers run in a random order from barrier to barrier: a wrong number
//   memory that nobody wrote  shared memory begins as NaN
//   a copy read too early     a copy arrives at once, or as late as its wait allows, by a coin; until then it is NaN
//   a barrier not all reach   no fiber can go on: an error
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <ucontext.h>
#include <vector>

#define DEVICE inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct float4 {
    float x, y, z, w;
};
struct Index {
    int x, y;
};
static Index blockIdx, threadIdx;

namespace emulator {

struct Barrier {
    int size = 0, arrived = 0;
    long passed = 0;
};
struct Copy {
    float* to;
    const float* from;
};
struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 16);
    int block = 0, thread = 0;
    bool is_done = false;
    long cluster_waits_for = 0;               // how often the cluster's barrier was passed before this fiber arrived
    std::deque<std::vector<Copy>> groups;     // of copies that are on their way; the last one is not complete
    float given = 0.0f;                       // to another lane
};

constexpr size_t SHARED_FLOATS = 48 * 1024 / 4;
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<std::vector<float>> shared;  // by block
static std::vector<Barrier> of_warp, of_block;
static Barrier of_cluster;
static Fiber* now;
static int threads_of_block;
static bool something_happened;
static std::minstd_rand coin;
static size_t reserved;
static void (*kernel)();

static size_t reserve(size_t floats) {
    const size_t offset = reserved;
    reserved += (floats + 3) / 4 * 4;
    return offset;
}

static void yield() {
    Fiber* me = now;
    swapcontext(&me->context, &scheduler);
}
static long arrive(Barrier& barrier) {
    const long passed = barrier.passed;
    if (++barrier.arrived == barrier.size) barrier.arrived = 0, ++barrier.passed, something_happened = true;
    return passed;
}
static void wait(const Barrier& barrier, long passed) {
    while (barrier.passed == passed) yield();
}
static Barrier& warp() { return of_warp[now->block * (threads_of_block / 32) + now->thread / 32]; }

static void run_fiber() {
    kernel();
    now->is_done = something_happened = true;
    yield();
}

// Run a cluster of `blocks` thread blocks of `threads` threads. Returns false if a barrier was not reached by all.
static bool run_cluster(int first_block, int seed, int blocks, int threads, std::mt19937& random) {
    const int n = blocks * threads;
    threads_of_block = threads;
    fibers.resize(n);
    shared.assign(blocks, std::vector<float>(SHARED_FLOATS, NAN));
    of_warp.assign(n / 32, Barrier{32});
    of_block.assign(blocks, Barrier{threads});
    of_cluster = Barrier{n};
    std::vector<Fiber*> running;
    for (int i = 0; i < n; i++) {
        Fiber& fiber = fibers[i];
        fiber.block = i / threads, fiber.thread = i % threads, fiber.is_done = false;
        fiber.groups.assign(1, {});
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
        running.push_back(&fiber);
    }
    while (!running.empty()) {
        something_happened = false;
        std::shuffle(running.begin(), running.end(), random);
        for (Fiber* fiber : running) {
            now = fiber;
            blockIdx = {first_block + fiber->block, seed}, threadIdx = {fiber->thread, 0};
            swapcontext(&scheduler, &fiber->context);
        }
        running.erase(std::remove_if(running.begin(), running.end(), [](Fiber* f) { return f->is_done; }), running.end());
        if (!something_happened) return false;
    }
    return true;
}

}  // namespace emulator

// Both kernels are one program here, so each has its own part of a block's shared memory.
#define SHARED(name, numbers)                                             \
    static const size_t offset_of_##name = emulator::reserve(numbers);    \
    float* const name = emulator::shared[emulator::now->block].data() + offset_of_##name

DEVICE int cluster_rank() { return emulator::now->block; }
DEVICE void block_sync() {
    auto& barrier = emulator::of_block[emulator::now->block];
    emulator::wait(barrier, emulator::arrive(barrier));
}
DEVICE void cluster_arrive() { emulator::now->cluster_waits_for = emulator::arrive(emulator::of_cluster); }
DEVICE void cluster_wait() { emulator::wait(emulator::of_cluster, emulator::now->cluster_waits_for); }
DEVICE void remote_store(float* p, int rank, float value) {
    emulator::shared[rank][p - emulator::shared[emulator::now->block].data()] = value;
}
DEVICE float4 load4(const float* p) { return *(const float4*)p; }
DEVICE void fetch(float* to, const float* from) {
    if (emulator::coin() & 64) {
        *to = *from;
    } else {
        *to = NAN;
        emulator::now->groups.back().push_back({to, from});
    }
}
DEVICE void end_of_group() { emulator::now->groups.emplace_back(); }
template <int groups>
DEVICE void arrived() {
    auto& waiting = emulator::now->groups;
    for (; (int)waiting.size() - 1 > groups; waiting.pop_front())
        for (const auto& copy : waiting.front()) *copy.to = *copy.from;
}
DEVICE float exchange(float value, int mask) {
    auto& barrier = emulator::warp();
    emulator::now->given = value;
    emulator::wait(barrier, emulator::arrive(barrier));
    const int other = (emulator::now - emulator::fibers.data()) ^ mask;
    const float taken = emulator::fibers[other].given;
    emulator::wait(barrier, emulator::arrive(barrier));
    return taken;
}
DEVICE float reciprocal(float x) { return 1.0f / x; }
