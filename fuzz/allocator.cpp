// Checks sequences of the caching allocator's calls, decoded from bytes, against a simple model, on the host device.
//
// With clang's -fsanitize=fuzzer and FUZZER defined it is a target of libFuzzer (`make fuzz`). Otherwise it is a
// deterministic program: `allocator [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]` replays
// files, and then inputs generated from seeds. `--save` saves a failing input. A failure prints its calls.
//
// `allocator --calls N [--seed FIRST] [--seconds MOST] [--check-every N]` is for long runs: long inputs, most calls of which
// allocate and free small blocks; one block in 64 has its contents checked; and the other checks are made after random
// numbers of calls, N on average. A failure prints the last 2,048 calls, and the options that run its input again.
//
// The invariants: live blocks do not overlap, neither in their addresses nor in the data written to them in stream order,
// whether their streams are blocked or not; the counters equal the model's; held memory stays within the limit and the
// device's memory; invalid pointers are rejected; a failed call changes nothing; the allocator's own consistency check
// passes; and at the end all memory can be allocated again, and is released.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "calls.h"

namespace {

void clean_up() {
  note("the end");
  next_fault = Fault();
  callback_frees = 0;
  settle();
  while (!live.empty()) {
    free_block(live.size() - 1);
  }
  for (int device = 0; device < DEVICES; device++) {
    while (!routes[device].empty()) {
      end_pool(device, routes[device].back().pool);
    }
    for (int pool = 0; pool < POOLS; pool++) {
      while (pools[pool].users[device] > 0) {
        release_pool(device, pool);
      }
    }
    limit(device, 5);
  }
  for (int pool = 0; pool < POOLS; pool++) {
    if (pools[pool].created) {
      destroy_pool(pool);
    }
  }
  while (!direct.empty()) {
    CHECK_OK(plinth_device_free(direct.back().first));
    direct.pop_back();
  }
  settle();
  CHECK_OK(plinth_testing_check_allocator());
  check_counters();
  for (int device = 0; device < DEVICES; device++) {
    CHECK_EQ(allocated(device), 0);
  }
  // One large request can reuse all cached memory, wherever it is.
  void *large = nullptr;
  const size_t bytes = totals[0] / 8 * 7;
  note("alloc(%zu, device 0, stream 1) at the end", bytes);
  CHECK_OK(plinth_caching_allocator_alloc(bytes, 0, streams[0][1], &large));
  CHECK_OK(plinth_caching_allocator_delete(large));
  for (int device = 0; device < DEVICES; device++) {
    CHECK_OK(plinth_reset_peak_memory_stats(device));
  }
  note("empty_cache() at the end");
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_testing_check_allocator());
  for (int device = 0; device < DEVICES; device++) {
    CHECK_EQ(reserved(device), 0);
    sums[device] = peaks[device] = 0;
    may_exceed[device] = false;
  }
  plinth_host_usage_t usage = PLINTH_HOST_USAGE_INIT;
  CHECK_OK(plinth_host_usage(&usage));
  CHECK_EQ(usage.device_bytes, 0);
  CHECK_EQ(usage.memory_handles, 0);
  CHECK_EQ(usage.mappings, 0);
  for (Pool &pool : pools) {
    pool = Pool();
  }
  used_on_oom = false;
  stale.clear();
  current = 0;
  use_device(current);
}

void prepare() {
  static bool prepared = false;
  if (prepared) {
    return;
  }
  prepared = true;
  // With little memory, requests soon run out of it. Variables that are set already take precedence.
  setenv("PLINTH_DEVICE", "host", 0);
  setenv("PLINTH_HOST_DEVICES", "2", 1);
  setenv("PLINTH_HOST_MEMORY", "512MiB", 0);
  const char *configuration = getenv("PLINTH_ALLOC_CONF");
  segments = configuration != nullptr && strstr(configuration, "False") != nullptr;
  CHECK_OK(plinth_enable_fault_injection());
  for (int device = 0; device < DEVICES; device++) {
    size_t available = 0;
    CHECK_OK(plinth_mem_get_info(device, &available, &totals[device]));
    limits[device] = totals[device];
    for (int stream = 1; stream <= 3; stream++) {
      CHECK_OK(plinth_stream_create(device, 0, &streams[device][stream]));
    }
    // CU_STREAM_LEGACY, the other handle of the default stream.
    streams[device][4] = reinterpret_cast<plinth_stream_t>(uintptr_t{1});
  }
  void *memory = nullptr;
  CHECK_OK(plinth_pinned_malloc(SLOTS * sizeof *slots, &memory));
  slots = static_cast<uint32_t *>(memory);
  CHECK_OK(plinth_add_free_memory_callback(free_memory, nullptr));
  use_device(0);
}

#ifndef FUZZER
// How many seconds pass until the calls since the last check count as one that waits for a closed gate and never returns.
// libFuzzer has -timeout. A long run may have little of its processor.
unsigned call_limit() { return is_long ? 600 : 60; }
#endif

void check_all() {
  check_counters();
  check_pools();
  if (plinth_testing_check_allocator() != PLINTH_OK) {
    fail(__LINE__, "the allocator's data structures are inconsistent");
  }
}

// In a long run, checks everything after a random number of calls. That does not change which calls follow.
void check_sometimes() {
  if (!is_check_due()) {
    return;
  }
#ifndef FUZZER
  alarm(call_limit());
#endif
  check_all();
  next_check = calls_made + 1 + (uint64_t{next_word} * UINT64_C(0x9E3779B97F4A7C15) >> 32) % (2 * check_interval);
}

void run(const uint8_t *data, size_t size) {
  input = data;
  input_bytes = size;
  prepare();
#ifndef FUZZER
  alarm(call_limit());
#endif
  calls.clear();
  next_word = 0;
  note_count = frees_due = 0;
  next_check = calls_made;
  is_short[0] = is_short[1] = false;
  Reader in{{data, data + size}};
  sparse = (in.byte() & 1) != 0 || is_long;
  for (size_t count = 0; (count < MOST_CALLS || is_long) && !in.empty(); count++) {
    one_call(in);
    if (is_long) {
      check_sometimes();
      continue;
    }
    if (!sparse) {
      check_counters();
    }
    if (count % (sparse ? 32 : 8) == 7) {
      check_all();
    }
  }
  check_pools();
  clean_up();
#ifndef FUZZER
  alarm(0);
#endif
}

}  // namespace

#ifdef FUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run(data, size);
  return 0;
}

#else

namespace {

uint64_t calls_wanted, first_seed;

bool long_run_option(const std::string &name, const char *value) {
  const uint64_t number = strtoull(value, nullptr, 10);
  if (name == "--calls") {
    calls_wanted = number;
    is_long = is_noted_later = true;
  } else if (name == "--seed") {
    first_seed = number;
  } else if (name == "--check-every") {
    check_interval = number;
  } else {
    return false;
  }
  return true;
}

// Makes calls from seeds until there are enough of them, and prints how many now and then.
void run_long() {
  constexpr size_t INPUT = 256 * KIB;
  using std::chrono::steady_clock;
  const auto begin = steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(steady_clock::now() - begin).count(); };
  const uint64_t interval = check_interval;
  double next_report = 10;
  uint64_t seed = first_seed;
  for (; calls_made < calls_wanted && seconds() < max_seconds; seed++) {
    rare_interval = uint64_t{128} << seed % 4 * 2;
    check_interval = interval != 0 ? interval : rare_interval;
    input_name = "--calls 1 --seed " + std::to_string(seed);
    const std::vector<uint8_t> bytes = generate(seed, INPUT);
    run(bytes.data(), bytes.size());
    if (seconds() > next_report) {
      printf("%llu calls, %.0f s, seed %llu\n", static_cast<unsigned long long>(calls_made), seconds(),
             static_cast<unsigned long long>(seed));
      fflush(stdout);
      next_report = seconds() + 10;
    }
  }
  printf("%llu calls from the seeds %llu to %llu in %.1f s: all passed\n", static_cast<unsigned long long>(calls_made),
         static_cast<unsigned long long>(first_seed), static_cast<unsigned long long>(seed - 1), seconds());
}

}  // namespace

int main(int argc, char **argv) {
  program_option = long_run_option;
  const uint64_t done = replay_and_generate(argc, argv, run, [](uint64_t seed) { return 200 + seed % 8 * 200; });
  if (!is_long || replayed_files > 0) {
    printf("%zu files and %llu generated inputs, %llu calls: all passed\n", replayed_files,
           static_cast<unsigned long long>(done), static_cast<unsigned long long>(calls_made));
  }
  if (is_long) {
    run_long();
  }
  return 0;
}

#endif
