// Cooperative groups, cuda::atomic, cuda::barrier and pipelines of kernels on the host device.
//   g++ -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -pthread -I../../kernels/host cooperative.cpp
//   ./a.out
#include "run.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cuda/std/type_traits>
#include <cuda/std/utility>
#include <cuda_pipeline.h>

#include <climits>
#include <cmath>

namespace cg = cooperative_groups;

// Counts what does not hold, in a kernel.
static std::atomic<unsigned> wrong{0};
#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition) && wrong++ < 20) printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
  } while (0)

__global__ void check_positions(unsigned *in_grid) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  EXPECT(block.thread_rank() == rank && block.size() == 2 * 3 * 11 && block.num_threads() == block.size());
  EXPECT(block.group_index().x == blockIdx.x && block.thread_index().y == threadIdx.y && block.group_dim().z == 11);
  EXPECT(block.dim_threads().x == 2);
  EXPECT(grid.size() == 66 * 6 && grid.num_blocks() == 6 && grid.block_rank() == blockIdx.x + 3 * blockIdx.y);
  EXPECT(grid.thread_rank() == 66 * grid.block_rank() + rank && grid.dim_blocks().y == 2 && grid.group_dim().x == 3);
  EXPECT(grid.dim_threads().x == 6 && grid.thread_index().z == threadIdx.z && grid.block_index().y == blockIdx.y);
  EXPECT(!grid.is_valid() && cg::this_thread().size() == 1 && cg::this_thread().thread_rank() == 0);
  const cg::thread_group any = block, all = grid;
  EXPECT(any.size() == 66 && any.thread_rank() == rank && all.size() == 396 && all.thread_rank() == grid.thread_rank());
  EXPECT(cg::thread_rank(block) == rank && cg::group_size(grid) == 396);
  any.sync();
  cg::sync(block);
  block.barrier_wait(block.barrier_arrive());
  atomicAdd(in_grid + grid.thread_rank(), 1u);
}

__global__ void sync_grid(unsigned *values) {
  const cg::grid_group grid = cg::this_grid();
  const unsigned long long at = grid.thread_rank(), count = grid.size();
  EXPECT(grid.is_valid());
  for (unsigned turn = 0; turn < 10; turn++) {
    values[at] = turn * unsigned(count) + unsigned(at);
    grid.sync();
    EXPECT(values[(at * 7 + turn) % count] == turn * count + (at * 7 + turn) % count);
    if (turn % 2) {
      const cg::thread_group any = grid;
      any.sync();
    } else {
      grid.barrier_wait(grid.barrier_arrive());
    }
  }
}

struct Big {
  int values[8];
};

template <typename Group>
__device__ void check_tile(const Group &tile, unsigned size) {
  const unsigned all = cg::this_thread_block().size(), in_block = cg::this_thread_block().thread_rank();
  const unsigned rank = in_block % size, first = in_block - rank, there = all - first < size ? all - first : size;
  const auto or_mine = [&](unsigned other) { return other < there ? first + other : in_block; };
  EXPECT(tile.size() == size && tile.num_threads() == size && tile.thread_rank() == rank);
  for (int at = 0; at < int(size); at++) EXPECT(tile.shfl(in_block, at) == or_mine(unsigned(at)));
  for (unsigned at = 0; at < size; at++) {
    EXPECT(tile.shfl_up(in_block, at) == (rank >= at ? in_block - at : in_block));
    EXPECT(tile.shfl_down(in_block, at) == (rank + at < size ? or_mine(rank + at) : in_block));
    EXPECT(tile.shfl_xor(in_block, at) == or_mine(rank ^ at));
  }
  EXPECT(tile.shfl(short(in_block), 0) == short(first) && tile.shfl(double(in_block), 0) == first);
  Big big = {{int(in_block), 1, 2, 3, 4, 5, 6, int(~in_block)}};
  EXPECT(tile.shfl(big, 0).values[0] == int(first) && tile.shfl(big, 0).values[7] == int(~first));
  EXPECT(tile.any(rank == 0) == 1 && tile.any(rank == size) == 0);
  EXPECT(tile.all(1) == (there == size) && tile.all(rank != 0) == 0);
  unsigned threes = 0, odd = 0;
  for (unsigned at = 0; at < there; at++) threes |= (at % 3 == 0 ? 1u : 0u) << at, odd |= (at % 2) << at;
  const unsigned whole = unsigned((1ull << there) - 1);
  EXPECT(tile.ballot(rank % 3 == 0) == threes);
  EXPECT(tile.match_any(rank % 2) == (rank % 2 ? odd : whole & ~odd));
  int same = -1;
  EXPECT(tile.match_all(first, same) == whole && same == 1);
  EXPECT(tile.match_all(float(rank), same) == (there == 1 ? whole : 0) && same == (there == 1));
  EXPECT(cg::reduce(tile, int(rank) - 5, cg::plus<int>()) == int(there * (there - 1) / 2) - 5 * int(there));
  EXPECT(cg::reduce(tile, 5 - double(rank), cg::less<double>()) == 6 - double(there));
  EXPECT(cg::reduce(tile, rank, cg::greater<unsigned>()) == there - 1);
  EXPECT(cg::reduce(tile, 1ull << rank, cg::bit_or<unsigned long long>()) == whole);
  EXPECT(cg::reduce(tile, ~(1u << rank), cg::bit_and<unsigned>()) == ~whole);
  EXPECT(cg::reduce(tile, 1u << rank, cg::bit_xor<unsigned>()) == whole);
  const auto add = [](float a, float b) { return a + b; };
  const float mine = 1.0f / float(in_block + 1);
  EXPECT(cg::inclusive_scan(tile, rank) == rank * (rank + 1) / 2);
  EXPECT(cg::exclusive_scan(tile, rank + 1) == rank * (rank + 1) / 2);
  float scanned = mine;
  for (unsigned distance = 1; distance < size; distance *= 2) {
    const float other = tile.shfl_up(scanned, distance);
    if (distance <= rank) scanned = add(scanned, other);
  }
  EXPECT(cg::inclusive_scan(tile, mine, add) == scanned);
  const float before = tile.shfl_up(scanned, 1);
  EXPECT(cg::exclusive_scan(tile, mine, add) == (rank == 0 ? 0.0f : before));
  if (there == size) {
    float sum = mine;
    for (unsigned distance = size / 2; distance > 0; distance /= 2) sum = add(sum, tile.shfl_xor(sum, distance));
    EXPECT(cg::reduce(tile, mine, add) == sum);
    // An operator whose result depends on the order of its arguments.
    const auto mix = [](unsigned a, unsigned b) { return a * 3 + b; };
    unsigned mixed = in_block;
    for (unsigned distance = size / 2; distance > 0; distance /= 2) mixed = mix(mixed, tile.shfl_xor(mixed, distance));
    EXPECT(cg::reduce(tile, in_block, mix) == mixed);
  }
  int calls = 0;
  cg::invoke_one(tile, [&](int by) { calls += by; }, 2);
  EXPECT(calls == (rank == 0 ? 2 : 0));
  EXPECT(cg::invoke_one_broadcast(tile, [&](unsigned by) { return in_block + by; }, 3u) == first + 3);
  tile.sync();
}

template <unsigned Size, typename Parent>
__device__ void check_tiles(const Parent &parent) {
  const auto tile = cg::tiled_partition<Size>(parent);
  check_tile(tile, Size);
  EXPECT(tile.meta_group_rank() == parent.thread_rank() / Size);
  EXPECT(tile.meta_group_size() == (parent.size() + Size - 1) / Size);
  const cg::thread_block_tile<Size> plain = tile;
  EXPECT(plain.meta_group_rank() == tile.meta_group_rank() && plain.meta_group_size() == tile.meta_group_size());
  EXPECT(plain.shfl(plain.thread_rank(), 0) == 0 && cg::reduce(plain, 1, cg::greater<int>()) == 1);
  const cg::thread_group any = tile;
  EXPECT(any.size() == Size && any.thread_rank() == tile.thread_rank());
  any.sync();
  const cg::thread_group later = cg::tiled_partition(cg::this_thread_block(), Size);
  EXPECT(later.thread_rank() == tile.thread_rank());
  later.sync();
  if constexpr (Size > 1) check_tiles<Size / 2>(tile);
}

__global__ void check_all_tiles() {
  check_tiles<32>(cg::this_thread_block());
  check_tiles<8>(cg::this_thread_block());
  const cg::thread_group half = cg::tiled_partition(cg::this_thread_block(), 16);
  const cg::thread_group part = cg::tiled_partition(half, 4);
  EXPECT(part.thread_rank() == threadIdx.x % 4 && part.size() <= 4);
  part.sync();
}

__device__ void check_coalesced(const cg::coalesced_group &group, unsigned mask) {
  unsigned lanes[32], size = 0, rank = 0;
  const unsigned lane = threadIdx.x % 32;
  for (unsigned at = 0; at < 32; at++) {
    if (at == lane) rank = size;
    if (mask >> at & 1) lanes[size++] = at;
  }
  EXPECT(group.size() == size && group.thread_rank() == rank && group.num_threads() == size);
  for (unsigned at = 0; at < size; at++) {
    EXPECT(group.shfl(lane, int(at)) == lanes[at]);
    EXPECT(group.shfl_up(lane, int(at)) == (rank >= at ? lanes[rank - at] : lane));
    EXPECT(group.shfl_down(lane, at) == (rank + at < size ? lanes[rank + at] : lane));
  }
  const unsigned whole = unsigned((1ull << size) - 1);
  int same = -1;
  EXPECT(group.ballot(1) == whole && group.ballot(rank == 0) == 1 && group.all(1) == 1 && group.all(rank != 0) == 0);
  EXPECT(group.any(rank == size - 1) == 1 && group.match_any(rank) == 1u << rank);
  EXPECT(group.match_all(mask, same) == whole && same == 1);
  EXPECT(cg::reduce(group, lane, cg::bit_xor<unsigned>()) == group.shfl(cg::inclusive_scan(group, lane,
         cg::bit_xor<unsigned>()), int(size) - 1));
  const float mine = 1.0f / float(lane + 3);
  const auto add = [](float a, float b) { return a + b; };
  float scanned = mine, exchanged = mine;
  for (unsigned distance = 1; distance < size; distance *= 2) {
    const float other = group.shfl_up(scanned, int(distance));
    if (distance <= rank) scanned = add(scanned, other);
  }
  for (unsigned distance = 16; size == 32 && distance > 0; distance /= 2) {
    exchanged = add(exchanged, __shfl_xor_sync(mask, exchanged, int(distance)));
  }
  EXPECT(cg::inclusive_scan(group, mine, add) == scanned);
  EXPECT(cg::reduce(group, mine, add) == (size == 32 ? exchanged : group.shfl(scanned, int(size) - 1)));
  EXPECT(cg::exclusive_scan(group, 2) == 2 * int(rank));
  const cg::thread_group any = group;
  EXPECT(any.size() == size && any.thread_rank() == rank);
  any.sync();
  EXPECT(cg::invoke_one_broadcast(group, [&] { return lane; }) == lanes[0]);
}

__device__ void check_parts(const cg::coalesced_group &group, unsigned mask) {
  check_coalesced(group, mask);
  EXPECT(group.meta_group_rank() == 0 && group.meta_group_size() == 1);
  for (unsigned size = 1; size <= 32; size *= 2) {
    const cg::coalesced_group part = cg::tiled_partition(group, size);
    unsigned members = 0, rank = 0;
    for (unsigned at = 0; at < 32; at++) {
      if (!(mask >> at & 1)) continue;
      if (rank / size == group.thread_rank() / size) members |= 1u << at;
      rank++;
    }
    check_coalesced(part, members);
    EXPECT(part.meta_group_rank() == group.thread_rank() / size);
    EXPECT(part.meta_group_size() == (group.size() + size - 1) / size);
  }
}

__global__ void check_all_coalesced() {
  const unsigned lane = threadIdx.x % 32;
  check_coalesced(cg::coalesced_threads(), 0xffffffff);
  for (unsigned mask : {0x1u, 0x80000000u, 0x0000ffffu, 0xf0f0f0f0u, 0x12345678u, 0xfffffffeu}) {
    __syncwarp();
    if (mask >> lane & 1) check_parts(cg::coalesced_threads(), mask);
  }
  __syncwarp();
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const unsigned first = lane & 16;
  const cg::coalesced_group odd = cg::binary_partition(tile, lane % 2 != 0);
  check_coalesced(odd, (lane % 2 ? 0xaaaau : 0x5555u) << first);
  EXPECT(odd.meta_group_rank() == lane % 2 && odd.meta_group_size() == 2);
  const cg::coalesced_group everyone = cg::binary_partition(tile, true);
  EXPECT(everyone.size() == 16 && everyone.meta_group_size() == 1 && everyone.meta_group_rank() == 0);
  const cg::coalesced_group fifths = cg::labeled_partition(tile, 7 - int(lane % 16) % 5);
  unsigned members = 0;
  for (unsigned at = 0; at < 16; at++) members |= (at % 5 == lane % 16 % 5 ? 1u : 0u) << (at + first);
  check_coalesced(fifths, members);
  EXPECT(fifths.meta_group_size() == 5 && fifths.meta_group_rank() == lane % 16 % 5);
  EXPECT(cg::labeled_partition(fifths, &members + lane).size() == 1);
  EXPECT(cg::labeled_partition(tile, lane % 16 < 3).size() == (lane % 16 < 3 ? 3 : 13));
}

__global__ void copy(const int *from, int *to) {
  const cg::thread_block block = cg::this_thread_block();
  __shared__ int values[100];
  cg::memcpy_async(block, values, from, sizeof values);
  cg::wait(block);
  to[threadIdx.x] = values[99 - threadIdx.x];
  block.sync();
  cg::memcpy_async(block, values, 10, from, 5);
  cg::wait_prior<0>(block);
  EXPECT(values[4] == from[4] && values[5] == from[5]);
  __shared__ __align__(16) int parts[4];
  if (threadIdx.x == 0) {
    __pipeline_memcpy_async(parts, from, 16, 6);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    EXPECT(parts[0] == from[0] && parts[1] == from[1] && parts[2] == (from[2] & 0xffff) && parts[3] == 0);
  }
}

template <typename T>
__global__ void check_atomic(T) {
  cuda::atomic<T, cuda::thread_scope_device> value(T(5));
  T expected = T(4);
  EXPECT(value.load() == 5 && value.exchange(T(6)) == 5 && value.is_lock_free());
  EXPECT(!value.compare_exchange_strong(expected, T(9)) && expected == 6);
  EXPECT(value.compare_exchange_weak(expected, T(7), cuda::memory_order_acq_rel) && value == T(7));
  EXPECT(value.fetch_add(T(3)) == 7 && value.fetch_sub(T(1), cuda::std::memory_order_relaxed) == 10 && value == T(9));
  EXPECT(value.fetch_min(T(4)) == 9 && value.fetch_max(T(8)) == 4 && value == T(8));
  EXPECT(++value == 9 && value++ == 9 && --value == 9 && value-- == 9);
  EXPECT((value += T(4)) == 12 && (value -= T(2)) == 10);
  value = T(1);
  value.store(T(3), cuda::memory_order_release);
  if constexpr (cuda::std::is_integral_v<T>) {
    EXPECT(value.fetch_or(T(4)) == 3 && value.fetch_and(T(5)) == 7 && value.fetch_xor(T(1)) == 5 && value == T(4));
    EXPECT((value |= T(3)) == 7 && (value &= T(6)) == 6 && (value ^= T(7)) == 1);
  }
  T plain = T(2);
  cuda::atomic_ref<T, cuda::thread_scope_block> ref(plain);
  EXPECT(ref.fetch_add(T(2)) == 2 && plain == 4 && (ref = T(1)) == 1 && ref.load() == 1);
}

struct Three {
  int a, b, c, d;
};

struct Shared {
  cuda::atomic<unsigned, cuda::thread_scope_system> sum, ready;
  cuda::std::atomic<double> total;
  cuda::atomic<Three> four;
  cuda::atomic_flag lock;
  unsigned guarded;
  float added;
  long long most;
};

__global__ void use_atomics(Shared *shared, unsigned *out) {
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  const cg::grid_group grid = cg::this_grid();
  cg::reduce_update_async(tile, shared->sum, 1u, cg::plus<unsigned>());
  cuda::atomic_ref<float, cuda::thread_scope_device> added(shared->added);
  cg::reduce_update_async(tile, added, 0.5f, cg::plus<float>());
  cuda::atomic_ref<long long> most(shared->most);
  most.fetch_max(static_cast<long long>(grid.thread_rank()));
  shared->total.fetch_add(0.25);
  Three three = shared->four.load();
  while (!shared->four.compare_exchange_weak(three, Three{three.a + 1, three.b - 1, three.a + 1, 0})) {
  }
  while (shared->lock.test_and_set(cuda::std::memory_order_acquire)) {
  }
  shared->guarded++;
  shared->lock.clear(cuda::std::memory_order_release);
  // A place in a list for each thread, in order within a tile.
  const unsigned at = cg::exclusive_scan_update(tile, shared->ready, 1u, cg::plus<unsigned>());
  EXPECT(at == tile.shfl(at, 0) + tile.thread_rank());
  out[at] = unsigned(grid.thread_rank());
  while (shared->ready.load(cuda::memory_order_acquire) < unsigned(blockDim.x)) {
  }
  cg::reduce_store_async(tile, out + grid.size() + grid.thread_rank() / 16, 2u, cg::plus<unsigned>());
}

__global__ void wait_for_value(cuda::atomic<int, cuda::thread_scope_block> *value) {
  cuda::atomic_ref<int, cuda::thread_scope_block> ref(reinterpret_cast<int *>(value)[0]);
  if (threadIdx.x < 40) {
    value->wait(0);
    while (value->load(cuda::memory_order_relaxed) != 2) {
    }
    cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_block);
  } else if (threadIdx.x == 40) {
    value->store(1);
    value->notify_all();
  } else {
    int expected = 1;
    while (!ref.compare_exchange_strong(expected, 2) && expected != 2) expected = 1;
  }
}

__global__ void use_latches(cuda::latch<cuda::thread_scope_device> *latch, unsigned *value,
                            cuda::counting_semaphore<cuda::thread_scope_device> *semaphore, unsigned *inside) {
  atomicAdd(value, 1u);
  latch->arrive_and_wait();
  EXPECT(*value == gridDim.x * blockDim.x);
  semaphore->acquire();
  EXPECT(atomicAdd(inside, 1u) < 3);
  __nanosleep(10);
  atomicSub(inside, 1u);
  semaphore->release();
}

struct Count {
  unsigned *calls;
  void operator()() { ++*calls; }
};

__global__ void use_barriers(unsigned *calls) {
  typedef cuda::barrier<cuda::thread_scope_block> Barrier;
  __shared__ Barrier barrier;
  __shared__ cuda::barrier<cuda::thread_scope_block, Count> counting;
  __shared__ unsigned values[96];
  __shared__ __mbarrier_t word;
  const cg::thread_block block = cg::this_thread_block();
  const unsigned at = threadIdx.x, count = blockDim.x;
  if (at == 0) {
    init(&barrier, count);
    init(&counting, count, Count{calls});
    __mbarrier_init(&word, count);
  }
  block.sync();
  for (unsigned turn = 0; turn < 5; turn++) {
    values[at] = turn * 100 + at;
    Barrier::arrival_token token = barrier.arrive();
    barrier.wait(cuda::std::move(token));
    EXPECT(values[count - 1 - at] == turn * 100 + count - 1 - at);
    barrier.arrive_and_wait();
    counting.arrive_and_wait();
    EXPECT(*calls == turn + 1);
    counting.arrive_and_wait();
    if (at == 0) *calls = turn + 1;
    const __mbarrier_token_t other = __mbarrier_arrive(&word);
    EXPECT(__mbarrier_token_pending_count(other) >= 1 && __mbarrier_token_pending_count(other) <= count);
    while (!__mbarrier_try_wait(&word, other, 100)) {
    }
    const auto last = barrier.arrive();
    while (!barrier.try_wait_parity((turn * 3 + 2) % 2)) {
    }
    (void)last;
  }
  __shared__ int copied[64];
  const int from[64] = {int(at), 1, 2, 3};
  cuda::memcpy_async(block, copied, from, cuda::aligned_size_t<16>(sizeof copied), barrier);
  barrier.arrive_and_wait();
  EXPECT(copied[0] == 0 && copied[3] == 3);
  if (at >= 10) {
    barrier.arrive_and_drop();
    return;
  }
  barrier.arrive_and_wait();
  barrier.arrive_and_wait();
}

__global__ void use_pipelines(const int *from, int *to, int stages_of_work) {
  const cg::thread_block block = cg::this_thread_block();
  const unsigned at = threadIdx.x, count = blockDim.x;
  {
    __shared__ int stages[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    for (int done = 0, begun = 0; done < stages_of_work; done++) {
      for (; begun < stages_of_work && begun < done + 2; begun++) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, stages[begun % 2], from + begun * 64, sizeof stages[0], pipe);
        pipe.producer_commit();
      }
      pipe.consumer_wait();
      if (at < 64) to[done * 64 + int(at)] = stages[done % 2][63 - at];
      pipe.consumer_release();
    }
  }
  block.sync();
  {
    __shared__ int stages[3][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    const auto role = at % 2 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    for (int turn = 0; turn < stages_of_work; turn++) {
      if (at % 2) {
        pipe.producer_acquire();
        for (unsigned i = at / 2; i < 64; i += count / 2) {
          cuda::memcpy_async(&stages[turn % 3][i], from + turn * 64 + i, sizeof(int), pipe);
        }
        pipe.producer_commit();
      } else {
        pipe.consumer_wait();
        for (unsigned i = at / 2; i < 64; i += (count + 1) / 2) to[turn * 64 + int(i)] += stages[turn % 3][i];
        pipe.consumer_release();
        if (turn == 1 && at == 4 && stages_of_work < 0) return;
      }
    }
    pipe.quit();
  }
  auto mine = cuda::make_pipeline();
  int value = 0;
  mine.producer_acquire();
  cuda::memcpy_async(&value, from + 3, sizeof value, mine);
  mine.producer_commit();
  cuda::pipeline_consumer_wait_prior<0>(mine);
  EXPECT(value == from[3]);
  mine.consumer_release();
}

__global__ void arrive_too_often() {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  if (threadIdx.x == 0) init(&barrier, 2);
  __syncthreads();
  if (threadIdx.x == 0) (void)barrier.arrive(3);
}
__global__ void sync_no_grid() { cg::this_grid().sync(); }

__global__ void use_standard() {
  cuda::std::array<int, 3> values{1, 2, 3};
  const cuda::std::tuple<int, float> both(values[1], 2.5f);
  EXPECT(cuda::std::get<1>(both) == 2.5f && cuda::std::numeric_limits<int>::max() == INT_MAX);
  static_assert(cuda::std::is_same_v<cuda::std::remove_cvref_t<const int &>, int>, "");
  typedef unsigned char Byte;
  EXPECT(cuda::std::bit_cast<unsigned>(1.0f) == 0x3f800000 && cuda::std::popcount(0xf0fu) == 8);
  EXPECT(cuda::std::countl_zero(Byte(1)) == 7 && cuda::std::countl_zero(Byte(0)) == 8 && cuda::std::countl_one(~0u) == 32);
  EXPECT(cuda::std::countr_zero(8ull) == 3 && cuda::std::countr_one(Byte(255)) == 8 && cuda::std::bit_width(0u) == 0);
  EXPECT(cuda::std::bit_floor(100u) == 64 && cuda::std::bit_ceil(100u) == 128 && cuda::std::bit_ceil(64ull) == 64);
  EXPECT(cuda::std::rotl(Byte(0x81), 1) == 3 && cuda::std::rotr(1u, 33) == 0x80000000u && cuda::std::rotl(5u, 0) == 5);
  EXPECT(cuda::std::rotl(2u, -1) == 1 && cuda::std::rotr(1u, -1) == 2 && cuda::std::has_single_bit(4u));
}

int main() {
  std::vector<unsigned> once(396);
  launch<&check_positions>(dim3(3, 2), dim3(2, 3, 11), once.data());
  for (unsigned count : once) CHECK(count == 1);
  std::vector<unsigned> values(6 * 40);
  CHECK(run_kernel<&sync_grid>(true, dim3(3, 2), dim3(8, 5), values.data()).empty());
  CHECK(run_kernel<&sync_no_grid>(false, dim3(1), dim3(2)).find("cooperative") != std::string::npos);

  for (unsigned threads : {32u, 64u, 45u, 1u}) launch<&check_all_tiles>(dim3(2), dim3(threads));
  launch<&check_all_coalesced>(dim3(2), dim3(64));

  std::vector<int> from(64 * 9), to(64 * 9);
  for (size_t at = 0; at < from.size(); at++) from[at] = int(at * 1234567 + 1);
  launch<&copy>(dim3(1), dim3(100), static_cast<const int *>(from.data()), to.data());
  for (size_t at = 0; at < 100; at++) CHECK(to[at] == from[99 - at]);

  launch<&check_atomic<char>>(dim3(1), dim3(1), char());
  launch<&check_atomic<unsigned short>>(dim3(1), dim3(1), static_cast<unsigned short>(0));
  launch<&check_atomic<int>>(dim3(1), dim3(1), 0);
  launch<&check_atomic<unsigned long>>(dim3(1), dim3(1), 0ul);
  launch<&check_atomic<long long>>(dim3(1), dim3(1), 0ll);
  launch<&check_atomic<float>>(dim3(1), dim3(1), 0.0f);
  launch<&check_atomic<double>>(dim3(1), dim3(1), 0.0);

  static Shared shared = {};
  constexpr unsigned all = 20 * 64;
  std::vector<unsigned> out(all + all / 16, 0);
  launch<&use_atomics>(dim3(20), dim3(64), &shared, out.data());
  CHECK(shared.sum == all && shared.added == all / 2 && shared.most == all - 1 && shared.guarded == all);
  const Three three = shared.four;
  CHECK(shared.total == all / 4 && three.a == int(all) && three.b == -int(all) && three.c == int(all));
  std::vector<unsigned> seen(all);
  for (unsigned at = 0; at < all; at++) seen[out[at]]++;
  for (unsigned count : seen) CHECK(count == 1);
  for (unsigned at = all; at < out.size(); at++) CHECK(out[at] == 32);
  cuda::atomic<int, cuda::thread_scope_block> value(0);
  launch<&wait_for_value>(dim3(1), dim3(50), &value);

  cuda::latch<cuda::thread_scope_device> latch(160);
  cuda::counting_semaphore<cuda::thread_scope_device> semaphore(3);
  unsigned arrived = 0, inside = 0;
  CHECK(run_kernel<&use_latches>(true, dim3(4), dim3(40), &latch, &arrived, &semaphore, &inside).empty());

  unsigned calls = 0;
  launch<&use_barriers>(dim3(1), dim3(96), &calls);
  for (int turns : {0, 1, 2, 9}) {
    std::fill(to.begin(), to.end(), 0);
    launch<&use_pipelines>(dim3(1), dim3(67), static_cast<const int *>(from.data()), to.data(), turns);
    for (size_t at = 0; at < size_t(turns) * 64; at++) CHECK(to[at] == from[at / 64 * 64 + 63 - at % 64] + from[at]);
  }
  CHECK(run_kernel<&arrive_too_often>(false, dim3(1), dim3(2)).find("barrier") != std::string::npos);
  launch<&use_standard>(dim3(1), dim3(1));
  CHECK(wrong == 0);
  return finish("cooperative");
}
