// Passes hostile data to the library, on the host device: messages of other processes, tensors, handles, settings, states.
// Every call must return a status with a message. It must not crash, hang, or lose memory or descriptors.
//
// With clang's -fsanitize=fuzzer and FUZZER defined it is a target of libFuzzer (`make fuzz`). Otherwise it is a
// deterministic program with the options of the allocator's fuzzer. An input has `ITEMS` calls; at the end the program
// prints their number by kind.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "hostile_messages.h"
#include "hostile_settings.h"

#include <dirent.h>
#include <malloc.h>

namespace {

constexpr int ITEMS = 64;
// The number of inputs between two searches for what was lost.
unsigned long long interval() { return verbose ? 1 : 128; }
// Memory that may be in use in addition after any number of inputs: tables that grow to the largest size needed.
constexpr size_t MOST_GROWTH = 8 * MIB, MOST_EVENTS = 64;

void prepare_memories() {
  for (int32_t device = 0; device < DEVICES; device++) {
    for (int count = 0; count < 2; count++) {
      void *block = nullptr;
      CHECK_OK(plinth_caching_allocator_alloc(BLOCK, device, nullptr, &block));
      memories.push_back({2, device, static_cast<unsigned char *>(block)});
    }
    CHECK_OK(plinth_default_generator(device, &generators[device]));
  }
  // The first export opens a file that stays open.
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  CHECK_OK(plinth_ipc_export(memories[0].begin, &message));
  CHECK_OK(plinth_ipc_export_free(&message));
  void *block = nullptr;
  CHECK_OK(plinth_pinned_malloc(BLOCK, &block));
  memories.push_back({3, 0, static_cast<unsigned char *>(block)});
  alignas(4096) static unsigned char pageable[BLOCK];
  memories.push_back({1, 0, pageable});
}

void prepare() {
  static bool prepared = false;
  if (prepared) {
    return;
  }
  prepared = true;
  setenv("PLINTH_DEVICE", "host", 0);
  setenv("PLINTH_HOST_DEVICES", "2", 1);
  setenv("PLINTH_USE_KERNEL_CACHE", "0", 1);
  prepare_messages();
  prepare_settings();
  prepare_memories();
  prepare_states();
  prepare_handles();
}

// Returns the open files, without their descriptors' numbers. Events that were shared are not among them: the library
// keeps some for the next message, and their number is checked. Nor are libFuzzer's pipes to its symbolizer.
std::vector<std::string> open_files() {
  DIR *folder = opendir("/proc/self/fd");
  std::vector<std::string> files;
  CHECK(folder != nullptr);
  while (const dirent *entry = readdir(folder)) {
    char target[300];
    const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
    const std::string file(target, length > 0 ? static_cast<size_t>(length) : 0);
    bool is_counted = file.find("plinth-host-event") == std::string::npos;
#ifdef FUZZER
    is_counted &= file.compare(0, 5, "pipe:") != 0;
#endif
    if (is_counted) {
      files.push_back(file);
    }
  }
  closedir(folder);
  std::sort(files.begin(), files.end());
  return files;
}

// The allocated bytes of the C library's heap. A sanitizer has a heap of its own, and finds leaks itself.
size_t heap_in_use() {
#if SANITIZED
  return 0;
#elif __GLIBC_PREREQ(2, 33)
  return mallinfo2().uordblks;
#else
  return static_cast<unsigned>(mallinfo().uordblks);
#endif
}

struct Held {
  std::vector<std::string> files;
  size_t heap;
  plinth_host_usage_t usage;
};

Held held() {
  Held now = {{}, 0, PLINTH_HOST_USAGE_INIT};
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(1));
  CHECK_OK(plinth_set_allocator_settings(""));
  CHECK_OK(plinth_ipc_collect());
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_testing_check_allocator());
  CHECK_OK(plinth_host_usage(&now.usage));
  now.files = open_files();
  now.heap = heap_in_use();
  return now;
}

// Checks that no other files are open than before. A stream's thread may still be closing one.
void expect_no_more_files(const std::vector<std::string> &before) {
  std::vector<std::string> more;
  for (int attempt = 0; attempt < 100; attempt++) {
    const std::vector<std::string> now = open_files();
    more.clear();
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(more));
    if (more.empty()) {
      return;
    }
    usleep(10000);
  }
  fail(__LINE__, std::to_string(more.size()) + " files more are open, such as " + more[0]);
}

// Checks that nothing was lost since the first intervals, in which caches and tables fill.
void check_held() {
  static Held first;
  static unsigned long long inputs = 0;
  inputs++;
  if (inputs % interval() != 0) {
    return;
  }
  const Held now = held();
  if (verbose) {
    fprintf(stderr, "heap %zu, files %zu, device %llu\n", now.heap, now.files.size(),
            static_cast<unsigned long long>(now.usage.device_bytes));
  }
  if (inputs == 2 * interval()) {
    first = now;
  } else if (inputs > 2 * interval()) {
    note("after %llu inputs", inputs);
    expect_no_more_files(first.files);
    CHECK_EQ(now.usage.device_bytes, first.usage.device_bytes);
    CHECK_EQ(now.usage.memory_handles, first.usage.memory_handles);
    CHECK_EQ(now.usage.mappings, first.usage.mappings);
    CHECK_EQ(now.usage.reservations, first.usage.reservations);
    CHECK_EQ(now.usage.graphs, first.usage.graphs);
    CHECK(now.usage.events < first.usage.events + MOST_EVENTS);
    if (now.heap > first.heap + MOST_GROWTH) {
      fail(__LINE__, "the heap has grown by " + std::to_string(now.heap - first.heap) + " bytes");
    }
  }
}

void synchronize() {
  for (int32_t device = 0; device < DEVICES; device++) {
    CHECK_OK(plinth_synchronize(device));
  }
}

void one_item(Reader &in) {
  static const Kind kinds[] = {MESSAGES, TENSORS, HANDLES, SETTINGS, TENSORS, MESSAGES, TENSORS, STATES};
  static void (*const items[KINDS])(Reader &) = {one_message, one_tensor, one_handle, one_text, one_state};
  const Kind kind = kinds[in.byte() % COUNT(kinds)];
  last_status = PLINTH_OK;
  items[kind](in);
  counts[kind].inputs++;
  counts[kind].accepted += last_status == PLINTH_OK;
  if (verbose) {
    // Shows which call an asynchronous error belongs to.
    synchronize();
  }
}

void run(const uint8_t *data, size_t size) {
  input = data;
  input_bytes = size;
  calls.clear();
  prepare();
#ifndef FUZZER
  alarm(60);  // libFuzzer has -timeout
#endif
  Reader in{{data, data + size}};
  for (int item = 0; item < ITEMS && !in.empty(); item++) {
    one_item(in);
  }
  note("the end");
  CHECK_OK(plinth_set_device(0));
  synchronize();
  check_held();
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

int main(int argc, char **argv) {
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t done = replay_and_generate(argc, argv, run, [](uint64_t) { return size_t{ITEMS * 80}; });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  unsigned long long sum = 0;
  for (const Count &count : counts) {
    printf("%-9s %10llu, accepted %llu\n", count.name, count.inputs, count.accepted);
    sum += count.inputs;
  }
  printf("%zu files and %llu generated inputs, %llu calls in %.1f s: all passed\n", replayed_files,
         static_cast<unsigned long long>(done), sum, seconds);
  return 0;
}

#endif
