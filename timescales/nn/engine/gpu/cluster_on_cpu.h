// What cluster.h needs of a GPU, on a CPU: the threads of a cluster are fibers of one thread, so a kernel runs as it is
// written, and faults show that a GPU would show rarely or never:
//
//   a missing barrier         fibers run in a random order from barrier to barrier, and a block may rest for as long as
//                             the others take for a step: a wrong number
//   memory that nobody wrote  shared memory is NaN when its block begins, and what came before is lost
//   a copy read too early     a copy arrives at once, or as late as its wait allows, by a coin; until then it is NaN
//   a store to a block that has ended, and a barrier that not all threads reach: an error
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <csetjmp>
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
    ucontext_t begin;
    std::jmp_buf place;  // where it goes on
    std::vector<char> stack = std::vector<char>(1 << 16);
    int block = 0, thread = 0;
    bool has_begun = false, is_done = false;
    long cluster_waits_for = 0;               // how often the cluster's barrier was passed before this fiber arrived
    std::deque<std::vector<Copy>> groups;     // of copies that are on their way; the last one is not complete
    float given = 0.0f;                       // to another lane
};

constexpr size_t SHARED_FLOATS = 2 * 48 * 1024 / 4;  // for both kernels
static std::jmp_buf scheduler;
static std::vector<Fiber> fibers;
static std::vector<std::vector<float>> shared;  // by block
static std::vector<Barrier> of_warp, of_block;
static Barrier of_cluster;
static Fiber* now;
static int threads_of_block, first_block, seed;
static std::vector<int> of_block_begun, of_block_ended;  // numbers of threads
static bool something_happened, stored_too_late;
static std::minstd_rand coin;
static size_t reserved;
static void (*kernel)();

static size_t reserve(size_t floats) {
    const size_t offset = reserved;
    reserved += (floats + 3) / 4 * 4;
    return offset;
}

// Jumps are ten times as fast as swapcontext, which asks the system for the signal mask.
static void yield() {
    if (!_setjmp(now->place)) _longjmp(scheduler, 1);
}
static __attribute__((noinline)) void resume(Fiber* fiber) {
    if (_setjmp(scheduler)) return;
    now = fiber;
    blockIdx = {first_block + fiber->block, seed}, threadIdx = {fiber->thread, 0};
    if (fiber->has_begun) _longjmp(fiber->place, 1);
    fiber->has_begun = true;
    setcontext(&fiber->begin);
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
    if (!of_block_begun[now->block]++) shared[now->block].assign(SHARED_FLOATS, NAN);
    kernel();
    ++of_block_ended[now->block];
    now->is_done = something_happened = true;
    yield();
}

// Run a cluster of `blocks` thread blocks of `threads` threads. Returns what went wrong, or null.
static const char* run_cluster(int block, int of_seed, int blocks, int threads, std::mt19937& random) {
    const int n = blocks * threads;
    threads_of_block = threads, first_block = block, seed = of_seed;
    fibers.resize(n);
    shared.assign(blocks, std::vector<float>(SHARED_FLOATS));
    of_warp.assign(n / 32, Barrier{32});
    of_block.assign(blocks, Barrier{threads});
    of_cluster = Barrier{n};
    of_block_begun.assign(blocks, 0), of_block_ended.assign(blocks, 0), stored_too_late = false;
    std::vector<Fiber*> running;
    for (int i = 0; i < n; i++) {
        Fiber& fiber = fibers[i];
        fiber.block = i / threads, fiber.thread = i % threads, fiber.has_begun = fiber.is_done = false;
        fiber.groups.assign(1, {});
        getcontext(&fiber.begin);
        fiber.begin.uc_stack.ss_sp = fiber.stack.data();
        fiber.begin.uc_stack.ss_size = fiber.stack.size();
        fiber.begin.uc_link = nullptr;
        makecontext(&fiber.begin, run_fiber, 0);
        running.push_back(&fiber);
    }
    std::vector<int> rests(blocks);  // rounds; blocks do not begin at the same time
    for (int& rest : rests) rest = random() % 40;
    for (int idle = 0; !running.empty(); idle = something_happened ? 0 : idle + 1) {
        if (idle == 1000) return "not all threads reach a barrier";
        something_happened = false;
        for (int& rest : rests) rest = rest ? rest - 1 : random() % 16 ? 0 : random() % 40;
        std::shuffle(running.begin(), running.end(), random);
        for (Fiber* fiber : running)
            if (!rests[fiber->block]) resume(fiber);
        running.erase(std::remove_if(running.begin(), running.end(), [](Fiber* f) { return f->is_done; }), running.end());
    }
    return stored_too_late ? "a thread stores to a block that has ended" : nullptr;
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
    if (emulator::of_block_ended[rank]) emulator::stored_too_late = true;
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
