// Checks sequences of the caching allocator's calls, decoded from bytes, against a simple model, on the host device.
//
// With clang's -fsanitize=fuzzer and FUZZER defined it is a target of libFuzzer (`make fuzz`). Otherwise it is a
// deterministic program: `allocator [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]` replays
// files, and then inputs generated from seeds. `--save` saves a failing input. A failure prints its calls.
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

void run(const uint8_t *data, size_t size) {
  input = data;
  input_bytes = size;
  prepare();
#ifndef FUZZER
  alarm(60);  // a call that waits for a closed gate never returns; libFuzzer has -timeout
#endif
  calls.clear();
  next_word = 0;
  Reader in{data, data + size};
  sparse = in.byte() & 1;
  for (size_t count = 0; count < MOST_CALLS && !in.empty(); count++) {
    one_call(in);
    if (!sparse) {
      check_counters();
    }
    if (count % (sparse ? 32 : 8) == 7) {
      check_counters();
      check_pools();
      const plinth_status_t status = plinth_testing_check_allocator();
      if (status != PLINTH_OK) {
        fail(__LINE__, "the allocator's data structures are inconsistent");
      }
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

// Generates an input of some three hundred calls from a seed.
std::vector<uint8_t> generate(uint64_t seed) {
  std::vector<uint8_t> bytes(200 + seed % 8 * 200);
  for (uint8_t &byte : bytes) {
    uint64_t mixed = seed += UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    byte = static_cast<uint8_t>(mixed >> 56);
  }
  return bytes;
}

void hung(int) {
  // This is not async-signal-safe, but the process cannot continue anyway.
  fail(__LINE__, "a call does not return");
}

}  // namespace

#include <csignal>

int main(int argc, char **argv) {
  uint64_t first = 0, count = 0, done = 0;
  double max_seconds = 1e9;
  std::vector<std::string> files;
  for (int index = 1; index < argc; index++) {
    const std::string argument = argv[index];
    if (argument == "--verbose") {
      verbose = true;
    } else if (argument == "--seeds" && index + 2 < argc) {
      first = strtoull(argv[++index], nullptr, 10);
      count = strtoull(argv[++index], nullptr, 10);
    } else if (argument == "--seconds" && index + 1 < argc) {
      max_seconds = atof(argv[++index]);
    } else if (argument == "--save" && index + 1 < argc) {
      save_to = argv[++index];
    } else if (argument[0] == '-') {
      fprintf(stderr, "usage: %s [--seeds FIRST COUNT] [--seconds MOST] [--save FILE] [--verbose] [FILE...]\n", argv[0]);
      return 2;
    } else {
      files.push_back(argument);
    }
  }
  signal(SIGALRM, hung);
  for (const std::string &name : files) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
      fprintf(stderr, "%s cannot be read\n", name.c_str());
      return 2;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    input_name = name;
    run(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
  }
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + count; seed++, done++) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > max_seconds) {
      break;
    }
    const std::vector<uint8_t> bytes = generate(seed);
    input_name = "seed " + std::to_string(seed);
    if (verbose) {
      fprintf(stderr, "%s\n", input_name.c_str());
    }
    run(bytes.data(), bytes.size());
  }
  printf("%zu files and %llu generated inputs: all passed\n", files.size(), static_cast<unsigned long long>(done));
  return 0;
}

#endif
