// Measures the bandwidth of kernels, copies and fills on plinth's memory and on memory of the same size from the driver.
//
// The program starts two processes. In one the allocator is fresh. In the other blocks of all sizes were allocated and
// freed before, and some are still live, so that large blocks consist of handles between them. Both kinds of memory
// alternate, timed by events, in batches; the table shows the medians, and the ratio of plinth's to the driver's. A copy
// counts the bytes that it reads and writes. The copy kernel needs a GPU; copies use plinth_memcpy on both sides.
// Build and run: `make bench`.
#include "measure.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t MIB = size_t{1} << 20, GIB = size_t{1} << 30;

// Copies any number of 16-byte words, four for each thread and round. nvcc's output for
//   for (; at + 3 * step < count; at += 4 * step) { copy from[at], [at + step], [at + 2 * step], [at + 3 * step] }
//   for (; at < count; at += step) to[at] = from[at];
const char *const PTX = R"(
.version 7.0
.target sm_75
.address_size 64

.visible .entry copy16(
  .param .u64 copy16_param_0,
  .param .u64 copy16_param_1,
  .param .u64 copy16_param_2
)
{
  .reg .pred   %p<5>;
  .reg .b32   %r<45>;
  .reg .b64   %rd<46>;


  ld.param.u64   %rd19, [copy16_param_0];
  ld.param.u64   %rd20, [copy16_param_1];
  ld.param.u64   %rd18, [copy16_param_2];
  cvta.to.global.u64   %rd1, %rd19;
  cvta.to.global.u64   %rd2, %rd20;
  mov.u32   %r1, %nctaid.x;
  cvt.u64.u32   %rd3, %r1;
  mov.u32   %r2, %ntid.x;
  cvt.u64.u32   %rd4, %r2;
  mul.wide.u32   %rd5, %r1, %r2;
  mov.u32   %r3, %ctaid.x;
  mul.wide.u32   %rd21, %r3, %r2;
  mov.u32   %r4, %tid.x;
  cvt.u64.u32   %rd22, %r4;
  add.s64   %rd44, %rd21, %rd22;
  mul.lo.s64   %rd7, %rd5, 3;
  add.s64   %rd23, %rd44, %rd7;
  setp.ge.u64   %p1, %rd23, %rd18;
  @%p1 bra   $L__BB0_3;

  mul.lo.s64   %rd24, %rd3, %rd4;
  shl.b64   %rd8, %rd24, 4;
  shl.b64   %rd25, %rd44, 4;
  add.s64   %rd43, %rd1, %rd25;
  neg.s64   %rd10, %rd24;
  shl.b64   %rd33, %rd10, 4;

$L__BB0_2:
  shl.b64   %rd26, %rd44, 4;
  add.s64   %rd27, %rd2, %rd26;
  shl.b64   %rd28, %rd5, 2;
  shl.b64   %rd29, %rd5, 4;
  add.s64   %rd30, %rd27, %rd29;
  ld.global.nc.v4.u32   {%r5, %r6, %r7, %r8}, [%rd30];
  add.s64   %rd31, %rd30, %rd8;
  ld.global.nc.v4.u32   {%r13, %r14, %r15, %r16}, [%rd31];
  add.s64   %rd32, %rd31, %rd8;
  ld.global.nc.v4.u32   {%r21, %r22, %r23, %r24}, [%rd32];
  add.s64   %rd34, %rd30, %rd33;
  ld.global.nc.v4.u32   {%r29, %r30, %r31, %r32}, [%rd34];
  st.global.v4.u32   [%rd43], {%r29, %r30, %r31, %r32};
  add.s64   %rd35, %rd43, %rd8;
  st.global.v4.u32   [%rd35], {%r5, %r6, %r7, %r8};
  add.s64   %rd36, %rd35, %rd8;
  st.global.v4.u32   [%rd36], {%r13, %r14, %r15, %r16};
  add.s64   %rd37, %rd36, %rd8;
  add.s64   %rd43, %rd37, %rd8;
  st.global.v4.u32   [%rd37], {%r21, %r22, %r23, %r24};
  add.s64   %rd44, %rd28, %rd44;
  add.s64   %rd38, %rd44, %rd7;
  setp.lt.u64   %p2, %rd38, %rd18;
  @%p2 bra   $L__BB0_2;

$L__BB0_3:
  setp.ge.u64   %p3, %rd44, %rd18;
  @%p3 bra   $L__BB0_5;

$L__BB0_4:
  shl.b64   %rd39, %rd44, 4;
  add.s64   %rd40, %rd2, %rd39;
  add.s64   %rd41, %rd1, %rd39;
  ld.global.nc.v4.u32   {%r37, %r38, %r39, %r40}, [%rd40];
  st.global.v4.u32   [%rd41], {%r37, %r38, %r39, %r40};
  add.s64   %rd44, %rd44, %rd5;
  setp.lt.u64   %p4, %rd44, %rd18;
  @%p4 bra   $L__BB0_4;

$L__BB0_5:
  ret;

}
)";

using address = unsigned long long;

unsigned (*memory_alloc)(address *, size_t);
unsigned (*memory_free)(address);
unsigned (*module_load)(void **, const void *);
unsigned (*module_function)(void **, void *, const char *);
unsigned (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

template <typename Function> void find(const char *name, Function &function) {
  void *found = nullptr;
  MUST(plinth_driver_entry_point(name, &found));
  function = reinterpret_cast<Function>(found);
}

bool on_gpu;
plinth_stream_t stream;
plinth_event_t begin, end;
void *kernel;
unsigned blocks;

struct Pair {
  address from, to;
};

void run_kernel(const Pair &pair, size_t bytes) {
  address to = pair.to, from = pair.from;
  unsigned long long count = bytes / 16;
  void *arguments[] = {&to, &from, &count};
  DRIVER(launch(kernel, blocks, 1, 1, 512, 1, 1, 0, stream, arguments, nullptr));
}

void run_copy(const Pair &pair, size_t bytes) {
  MUST(plinth_memcpy(reinterpret_cast<void *>(pair.to), reinterpret_cast<void *>(pair.from), bytes, stream));
}

void run_fill(const Pair &pair, size_t bytes) { MUST(plinth_memset(reinterpret_cast<void *>(pair.to), 1, bytes, stream)); }

const struct Work {
  const char *name;
  void (*run)(const Pair &, size_t);
  double counted;
} works[] = {{"copy kernel", run_kernel, 2}, {"memcpy", run_copy, 2}, {"memset", run_fill, 1}};

// Returns the gigabytes per second of one batch.
double batch(const Work &work, const Pair &pair, size_t bytes, int calls) {
  float milliseconds = 0;
  MUST(plinth_event_record(begin, stream));
  for (int call = 0; call < calls; call++) {
    work.run(pair, bytes);
  }
  MUST(plinth_event_record(end, stream));
  MUST(plinth_event_synchronize(end));
  MUST(plinth_event_elapsed_time(begin, end, &milliseconds));
  return work.counted * static_cast<double>(bytes) * calls / (1e6 * static_cast<double>(milliseconds));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const char *phase, const Work &work, const Pair &ours, const Pair &drivers, size_t bytes) {
  const int batches = on_gpu ? 31 : 3;
  // Some milliseconds, so that the events' own cost is negligible.
  const int calls = on_gpu ? static_cast<int>(std::clamp<size_t>(8 * GIB / bytes, 8, 200)) : 2;
  std::vector<double> by_plinth, by_driver, ratios;
  batch(work, ours, bytes, 2);
  batch(work, drivers, bytes, 2);
  for (int round = 0; round < batches; round++) {
    // The order alternates from round to round.
    double first = batch(work, round % 2 ? drivers : ours, bytes, calls);
    double second = batch(work, round % 2 ? ours : drivers, bytes, calls);
    by_plinth.push_back(round % 2 ? second : first);
    by_driver.push_back(round % 2 ? first : second);
    ratios.push_back(by_plinth.back() / by_driver.back());
  }
  printf("| %-10s | %-11s | %5zu MiB | %9.1f | %9.1f | %6.4f |\n", phase, work.name, bytes / MIB, median(by_plinth),
         median(by_driver), median(ratios));
  fflush(stdout);
}

void *block(size_t bytes, plinth_stream_t where) {
  void *memory = nullptr;
  MUST(plinth_caching_allocator_alloc(bytes, 0, where, &memory));
  return memory;
}

void free_block(void *memory) { MUST(plinth_caching_allocator_delete(memory)); }

uint64_t next_number(uint64_t &state) {
  uint64_t mixed = state += UINT64_C(0x9E3779B97F4A7C15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
  return mixed ^ (mixed >> 31);
}

// Allocates and frees blocks of all sizes in two streams, with up to `budget` live bytes, and then frees three quarters of
// the blocks. Returns the others, which lie between the gaps.
std::vector<void *> fragment(size_t budget) {
  struct Block {
    void *memory;
    size_t bytes;
  };
  std::vector<Block> live;
  plinth_stream_t other = nullptr;
  uint64_t state = 1;
  size_t sum = 0;
  MUST(plinth_stream_create(0, 0, &other));
  const auto drop = [&](size_t index) {
    sum -= live[index].bytes;
    free_block(live[index].memory);
    live[index] = live.back();
    live.pop_back();
  };
  for (int round = 0; round < 20000; round++) {
    const uint64_t kind = next_number(state) % 8;
    const size_t most = kind < 3 ? 64 * 1024 : kind < 6 ? 4 * MIB : std::min(64 * MIB, budget / 16);
    const size_t bytes = 512 + next_number(state) % most;
    while (sum + bytes > budget) {
      drop(next_number(state) % live.size());
    }
    live.push_back({block(bytes, next_number(state) % 4 == 0 ? other : stream), bytes});
    sum += bytes;
  }
  std::vector<void *> kept;
  for (size_t index = 0; index < live.size(); index++) {
    if (index % 4 == 0) {
      kept.push_back(live[index].memory);
    } else {
      free_block(live[index].memory);
    }
  }
  MUST(plinth_synchronize(0));
  return kept;
}

void phase(bool fragmented) {
  size_t available = 0, total = 0;
  MUST(plinth_init());
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &begin));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &end));
  MUST(plinth_mem_get_info(0, &available, &total));
  find("cuMemAlloc", memory_alloc);
  find("cuMemFree", memory_free);
  int32_t kind = 0;
  MUST(plinth_get_device_kind(&kind));
  on_gpu = kind == PLINTH_DEVICE_CUDA;
  if (on_gpu) {
    void *module = nullptr;
    plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
    find("cuModuleLoadData", module_load);
    find("cuModuleGetFunction", module_function);
    find("cuLaunchKernel", launch);
    MUST(plinth_set_device(0));
    MUST(plinth_get_device_properties(0, &properties));
    DRIVER(module_load(&module, PTX));
    DRIVER(module_function(&kernel, module, "copy16"));
    blocks = static_cast<unsigned>(properties.multi_processor_count) * 4;
  }
  // On the host device copies reach some gigabytes per second only, and the devices are small.
  const size_t largest = on_gpu ? std::min(GIB, available / 8) : 64 * MIB;
  const char *name = fragmented ? "fragmented" : "fresh";
  std::vector<void *> kept;
  if (fragmented) {
    kept = fragment(on_gpu ? std::min(12 * GIB, available / 4) : 512 * MIB);
  }
  for (size_t bytes = 8 * MIB; bytes <= largest; bytes *= 2) {
    if (!fragmented) {
      MUST(plinth_empty_cache());
    }
    Pair drivers{}, ours{};
    void *from = block(bytes, stream), *to = block(bytes, stream);
    ours = {reinterpret_cast<address>(from), reinterpret_cast<address>(to)};
    DRIVER(memory_alloc(&drivers.from, bytes));
    DRIVER(memory_alloc(&drivers.to, bytes));
    for (const Pair *pair : {&ours, &drivers}) {
      MUST(plinth_memset(reinterpret_cast<void *>(pair->from), 0x5A, bytes, stream));
      MUST(plinth_memset(reinterpret_cast<void *>(pair->to), 0, bytes, stream));
      if (on_gpu) {
        uint32_t last = 0;
        run_kernel(*pair, bytes);
        MUST(plinth_memcpy(&last, reinterpret_cast<void *>(pair->to + bytes - 4), 4, stream));
        MUST(plinth_stream_synchronize(stream));
        if (last != 0x5A5A5A5A) {
          fprintf(stderr, "the kernel did not copy the last word of %zu bytes: %x\n", bytes, static_cast<unsigned>(last));
          exit(1);
        }
      }
    }
    for (const Work &work : works) {
      if (on_gpu || work.run != run_kernel) {
        measure(name, work, ours, drivers, bytes);
      }
    }
    MUST(plinth_stream_synchronize(stream));
    free_block(from);
    free_block(to);
    DRIVER(memory_free(drivers.from));
    DRIVER(memory_free(drivers.to));
  }
  for (void *memory : kept) {
    free_block(memory);
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 2) {
    phase(std::string(argv[1]) == "fragmented");
    return 0;
  }
  printf("GB/s, medians; ratio: median over the rounds of plinth's bandwidth divided by the driver's\n\n");
  printf("| allocator  | work        | size      |    plinth | cuMemAlloc |  ratio |\n|---|---|---|---|---|---|\n");
  fflush(stdout);
  for (const char *which : {"fresh", "fragmented"}) {
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", argv[0], which, static_cast<char *>(nullptr));
      _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fprintf(stderr, "the process with the %s allocator failed\n", which);
      return 1;
    }
  }
  return 0;
}
