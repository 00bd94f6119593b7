// Hostile texts: settings of the allocator, environment variables in new processes, names, code, addresses.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hostile_handles.h"

#include <poll.h>

namespace {

const char *const WORDS[] = {
    "expandable_segments", "max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb",
    "garbage_collection_threshold", "roundup_power2_divisions", "per_process_memory_fraction", "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom", "pinned_use_cuda_host_register",
    "pinned_num_register_threads", "pinned_use_background_threads", "pinned_reserve_segment_size_mb",
    "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb", "debug", "debug_quarantine_mb", "backend", "native",
    "cudaMallocAsync", "uncached", "guard", "unmap", "fill", "True", "False", "true", "256", "512", "0", "-1", "0.5", "1.0",
    "1e400", "nan", "inf", "99999999999999999999", "18446744073709551615", "20", "21", "1", "[", "]", ":", ":", ":", ":", ",",
    ",", ",", ";", "=", " ", "\t", "\n", "\"", "'", "\xFF", "\xC3\xA9", "%s%n", "[256:1,512:2,>:8]", ">", "one_shot",
    "block_bytes", "blocks", "staging", "entry", "copy_from", "broadcast", "reduce", "GiB", "64TiB", "1MiB", "GPU-", "host",
    "cuda", "auto", "nccl", "local", "shared", "wait", "off", "h100", "h200", "a100", "/", "..",
    "template <typename T> T f(T x) ",
    "{", "}", "return", "(", ")", "T", "<", "float", "&", "operator", "/*", "*/", "//", "R\"(", "\\", "file://", "tcp",
    "0,1,0"};

std::string hostile_text(Reader &in) {
  std::string text;
  for (unsigned count = in.byte() % 12; count > 0; count--) {
    const unsigned choice = in.byte();
    if (choice % 16 == 0) {
      text += static_cast<char>(1 + in.byte() % 255);
    } else if (choice % 16 == 1) {
      text += std::to_string(static_cast<int64_t>(in.number()));
    } else {
      text += WORDS[in.byte() % COUNT(WORDS)];
    }
  }
  if (in.one_in(200)) {
    text.append(static_cast<size_t>(1) << (8 + in.byte() % 10), 'x');
  }
  return text;
}

// A text that begins like a list of settings.
std::string settings_text(Reader &in) {
  std::string text;
  for (unsigned count = 1 + in.byte() % 3; count > 0; count--) {
    text += WORDS[in.byte() % 19];
    text += ":";
    text += in.one_in(3) ? hostile_text(in) : in.one_in(2) ? std::to_string(in.byte()) : WORDS[19 + in.byte() % 26];
    text += count > 1 ? "," : "";
  }
  return text;
}

// ---- environment variables, which a process reads once

const char *const VARIABLES[] = {"PLINTH_ALLOC_CONF",   "PYTORCH_CUDA_ALLOC_CONF", "PLINTH_COMM_CONF",
                                 "PLINTH_GROUP_TUNING", "PLINTH_IPC",              "PLINTH_DEVICE",
                                 "PLINTH_HOST_DEVICES", "PLINTH_HOST_MEMORY",      "PLINTH_HOST_MODEL",
                                 "PLINTH_HOST_PEERS",   "PLINTH_HOST_COSTS",       "PLINTH_HOST_MEMORY_NAME",
                                 "PLINTH_SANITIZER",    "PLINTH_COMMUNICATOR_ENGINE", "PLINTH_COMMUNICATOR_NCCL_FROM",
                                 "CUDA_VISIBLE_DEVICES", "PLINTH_KERNEL_CACHE_MAX_BYTES", "PLINTH_KERNEL_CACHE_PATH",
                                 "PLINTH_MEMORY_DEBUG", "PLINTH_CUDA_LIBRARY",     "PLINTH_NCCL_LIBRARY",
                                 "PLINTH_RENDEZVOUS_DIR", "PLINTH_NVML_LIBRARY",   "TORCH_BLAS_PREFER_CUBLASLT"};

int starter = -1;

// A call in a new process: any status with a message is right.
void try_call(plinth_status_t status) {
  if (status != PLINTH_OK && (status < 0 || status >= plinth_status_count() || status == PLINTH_ERROR_PANIC ||
                              plinth_last_error()[0] == 0)) {
    _exit(1);
  }
}

[[noreturn]] void use_environment() {
  void *block = nullptr;
  int32_t count = 0;
  const int32_t device = 0;
  plinth_communicator_t communicator = nullptr;
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  int32_t major = 0, minor = 0, patch = 0, mode = 0;
  alarm(30);
  try_call(plinth_device_count(&count));
  try_call(plinth_caching_allocator_alloc(1000, 0, nullptr, &block));
  if (block != nullptr) {
    try_call(plinth_ipc_export(block, &message));
    try_call(plinth_ipc_export_free(&message));
    try_call(plinth_caching_allocator_delete(block));
  }
  try_call(plinth_comm_get_threshold(0, &size));
  try_call(plinth_communicator_init_all(&device, 1, nullptr, &communicator));
  try_call(plinth_nccl_version(&major, &minor, &patch));
  try_call(plinth_sanitizer_mode(&mode));
  try_call(plinth_current_blas_handle(&pointer));
  try_call(plinth_temperature(0, &unsigned_number));
  try_call(plinth_pinned_malloc(1000, &block));
  try_call(plinth_synchronize(-1));
  _exit(0);
}

// Starts processes with an environment variable each, because a process reads it once. Its requests are pairs of texts,
// and its responses exit statuses.
[[noreturn]] void start_processes(int socket) {
  char request[8192];
  for (;;) {
    const ssize_t bytes = recv(socket, request, sizeof request - 1, 0);
    if (bytes <= 0) {
      _exit(0);
    }
    request[bytes] = 0;
    const pid_t child = fork();
    if (child == 0) {
      setenv(request, request + strlen(request) + 1, 1);
      use_environment();
    }
    int status = 0;
    waitpid(child, &status, 0);
    (void)!send(socket, &status, sizeof status, MSG_NOSIGNAL);
  }
}

// Call it before the first use of the library.
void prepare_settings() {
  int sockets[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
  if (fork() == 0) {
    close(sockets[0]);
    signal(SIGALRM, SIG_DFL);
    for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
      signal(number, SIG_DFL);
    }
    start_processes(sockets[1]);
  }
  close(sockets[1]);
  starter = sockets[0];
}

void use_variable(Reader &in) {
  const std::string name = VARIABLES[in.byte() % COUNT(VARIABLES)];
  std::string value = name.find("ALLOC_CONF") != std::string::npos ? settings_text(in) : hostile_text(in);
  value.resize(std::min<size_t>(value.size(), 4000));
  const std::string request = name + '\0' + value;
  note("a process with %s=%s", name.c_str(), value.c_str());
  int status = -1;
  CHECK(send(starter, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size()));
  CHECK(recv(starter, &status, sizeof status, 0) == static_cast<ssize_t>(sizeof status));
  if (status != 0) {
    fail(__LINE__, "a process with a hostile variable ended with wait status " + std::to_string(status));
  }
  last_status = PLINTH_ERROR_INVALID_CONFIGURATION;
}

void set_settings(Reader &in) {
  const std::string value = in.one_in(4) ? hostile_text(in) : settings_text(in);
  note("settings %s", value.c_str());
  if (EXPECT(plinth_set_allocator_settings(value.c_str())) != PLINTH_OK) {
    return;
  }
  // What the library says about its settings is a valid text, and the allocator still works.
  char *settings = nullptr;
  void *block = nullptr;
  CHECK_OK(plinth_get_allocator_settings(&settings));
  CHECK_OK(plinth_set_allocator_settings(settings));
  plinth_string_free(settings);
  if (EXPECT(plinth_caching_allocator_alloc(100, 0, nullptr, &block)) == PLINTH_OK) {
    CHECK_OK(plinth_caching_allocator_delete(block));
  }
  last_status = PLINTH_OK;
}

void pass_text(Reader &in) {
  const std::string value = hostile_text(in);
  plinth_jit_function_t function = nullptr;
  plinth_store_t other = nullptr;
  plinth_pluggable_allocator_t allocator = nullptr;
  const unsigned call = in.byte() % 12;
  note("call %u with the text %s", call, value.c_str());
  switch (call) {
    case 0:
    case 1:
    case 2:
      if (EXPECT(plinth_jiterator_create_jit_fn(value.c_str(), nullptr, 0, &function)) == PLINTH_OK) {
        CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
        last_status = PLINTH_OK;
      }
      break;
    case 3: EXPECT(plinth_driver_call_count(value.c_str(), &wide)); break;
    case 4: EXPECT(plinth_driver_entry_point(value.c_str(), &pointer)); break;
    case 5: EXPECT(plinth_memory_set_name(memories[0].begin, value.c_str())); break;
    case 6: EXPECT(plinth_stream_set_name(live_streams[0], value.c_str())); break;
    // The library keeps each distinct text for the lifetime of the process: a byte makes 256 of them.
    case 7: EXPECT(plinth_set_memory_metadata(value.substr(0, 1).c_str())); break;
    case 8: EXPECT(plinth_nvtx_mark(value.c_str())); break;
    case 9:
      // A folder would be made.
      if (value.compare(0, 1, "/") != 0 && value.compare(0, 4, "file") != 0) {
        expect_failure(__LINE__, plinth_store_create(value.c_str(), &other), "plinth_store_create");
      }
      break;
    case 10: EXPECT(plinth_pluggable_allocator_create(value.c_str(), "alloc", "free", &allocator)); break;
    default: EXPECT(plinth_store_get(store, value.c_str(), 1, state_bytes, 1, &size));
  }
}

void one_text(Reader &in) {
  const unsigned choice = in.byte();
  if (choice == 0 && in.one_in(8)) {
    use_variable(in);
  } else if (choice % 2 == 0) {
    set_settings(in);
  } else {
    pass_text(in);
  }
}

}  // namespace
