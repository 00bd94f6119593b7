// Sharing of memory between processes, access between devices, and copies.
//
// torch.multiprocessing sends a text. It holds the message of plinth and the numbers of the message's descriptors in
// the sender; the receiver duplicates them out of the sender with pidfd_getfd.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <type_traits>

namespace plinth_torch {
namespace {

constexpr char kMagic[8] = {'p', 'l', 'i', 'n', 't', 'h', '1', '\0'};

struct Header {
  char magic[8];
  int64_t process;
  uint64_t serial;
  uint64_t descriptors;
  uint64_t bytes;
};
static_assert(std::is_trivially_copyable_v<Header>);

// Makes torch's current stream of a device plinth's during its lifetime: plinth orders an exchange with that.
class CurrentStream {
 public:
  explicit CurrentStream(c10::DeviceIndex device) : device_(device) {
    check(plinth_current_stream(device, &previous_));
    plinth_stream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
    if (stream != nullptr) check(plinth_stream_from_external(stream, device, &stream));
    check(plinth_set_stream_of(device, stream));
  }
  ~CurrentStream() { plinth_set_stream_of(device_, previous_); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  c10::DeviceIndex device_;
  plinth_stream_t previous_ = nullptr;
};

// File descriptors that are closed at the end.
class Descriptors {
 public:
  Descriptors() = default;
  ~Descriptors() {
    for (const int descriptor : numbers) ::close(descriptor);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  std::vector<int32_t> numbers;
};

// The Yama security module lets only parents read the descriptors of a process, unless the process permits others. A
// receiver is often a child, or a sibling.
void permit_receivers() {
  static const bool once = [] {
    std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
    int scope = 0;
    if (file >> scope && scope == 1) prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return true;
  }();
  (void)once;
}

// A block has a descriptor for each 2 to 256 MiB, in the sender and for a moment in the receiver; CUDA's own handles have none.
void permit_descriptors() {
  static const bool once = [] {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = limit.rlim_max;
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    return true;
  }();
  (void)once;
}

void fetch(int64_t process, const std::vector<int32_t>& remote, Descriptors& local) {
  if (remote.empty()) return;
  Descriptors handle;
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
  TORCH_CHECK(pidfd >= 0, "receiving CUDA memory of process ", process, ": pidfd_open failed: ", std::strerror(errno),
              errno == ESRCH ? "; the process has ended, or is in another PID namespace"
                             : "; Linux 5.6 or later is required, and a container must permit the call");
  handle.numbers.push_back(pidfd);
  for (const int32_t number : remote) {
    const auto descriptor = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0));
    TORCH_CHECK(descriptor >= 0, "receiving CUDA memory of process ", process, ": pidfd_getfd failed: ",
                std::strerror(errno),
                errno == EPERM   ? "; this process may not trace the sender: run both as the same user with "
                                   "kernel.yama.ptrace_scope at most 1, and in a container with SYS_PTRACE"
                : errno == EBADF ? "; the sender has freed the memory"
                                 : "");
    local.numbers.push_back(descriptor);
  }
}

struct Parsed {
  Header header{};
  std::vector<int32_t> descriptors;
  const uint8_t* bytes = nullptr;
};

Parsed parse(const std::string& handle) {
  Parsed parsed;
  const auto refuse = "receiving CUDA memory: the handle was not made by plinth; the sender must call "
                      "plinth.torch.enable() too, with the same version";
  TORCH_CHECK(handle.size() >= sizeof(Header), refuse);
  std::memcpy(&parsed.header, handle.data(), sizeof(Header));
  TORCH_CHECK(std::memcmp(parsed.header.magic, kMagic, sizeof(kMagic)) == 0, refuse);
  const size_t rest = handle.size() - sizeof(Header);
  TORCH_CHECK(parsed.header.descriptors <= rest / sizeof(int32_t) &&
                  parsed.header.bytes == rest - parsed.header.descriptors * sizeof(int32_t),
              refuse);
  parsed.descriptors.resize(parsed.header.descriptors);
  const char* at = handle.data() + sizeof(Header);
  if (!parsed.descriptors.empty()) {
    std::memcpy(parsed.descriptors.data(), at, parsed.descriptors.size() * sizeof(int32_t));
  }
  parsed.bytes = reinterpret_cast<const uint8_t*>(at + parsed.descriptors.size() * sizeof(int32_t));
  return parsed;
}

}  // namespace

caching::ShareableHandle Sharing::share(void* pointer) {
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  check(plinth_pointer_attributes(pointer, &attributes));
  TORCH_CHECK(attributes.owner == PLINTH_OWNER_CACHING_ALLOCATOR && attributes.base != nullptr,
              "sharing CUDA memory: ", pointer, " is not in an allocated block of plinth; memory that was received from "
              "another process cannot be sent on");
  const auto offset = static_cast<char*>(pointer) - static_cast<char*>(attributes.base);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = exports_.find(attributes.base);
  if (found != exports_.end()) return {offset, found->second.handle};

  permit_receivers();
  permit_descriptors();
  Export created{PLINTH_IPC_EXPORT_INIT, {}};
  {
    const CurrentStream stream(static_cast<c10::DeviceIndex>(attributes.device));
    check(plinth_ipc_export(attributes.base, &created.message));
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.process = getpid();
  header.serial = ++next_;
  header.descriptors = created.message.descriptor_count;
  header.bytes = created.message.size;
  created.handle.append(reinterpret_cast<const char*>(&header), sizeof(header));
  created.handle.append(reinterpret_cast<const char*>(created.message.descriptors),
                        created.message.descriptor_count * sizeof(int32_t));
  created.handle.append(reinterpret_cast<const char*>(created.message.bytes), created.message.size);
  const auto [entry, inserted] = exports_.emplace(attributes.base, std::move(created));
  count_.store(exports_.size(), std::memory_order_release);
  return {offset, entry->second.handle};
}

void Sharing::end(void* pointer) {
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = exports_.find(pointer);
    if (found == exports_.end()) return;
    message = found->second.message;
    exports_.erase(found);
    count_.store(exports_.size(), std::memory_order_release);
  }
  plinth_ipc_export_free(&message);
}

std::shared_ptr<void> Sharing::receive(const std::string& handle) {
  const Parsed parsed = parse(handle);
  if (parsed.header.process == getpid()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pointer, shared] : exports_) {
      if (shared.handle == handle) return {pointer, [](void*) {}};
    }
    TORCH_CHECK(false, "receiving CUDA memory: this process itself shared the memory, and has freed it");
  }
  // One mapping for each handle, for as long as somebody uses it. The lock is held while it is made, so that two threads
  // do not make it twice.
  const std::lock_guard<std::mutex> lock(received_->mutex);
  const auto found = received_->memory.find(handle);
  if (found != received_->memory.end()) {
    if (auto memory = found->second.lock()) return memory;
  }
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  {
    Descriptors descriptors;
    permit_descriptors();
    fetch(parsed.header.process, parsed.descriptors, descriptors);
    const CurrentStream stream(device);
    check(plinth_ipc_import(parsed.bytes, parsed.header.bytes, descriptors.numbers.data(), descriptors.numbers.size(), -1,
                            &memory));
  }
  const auto owner = static_cast<c10::DeviceIndex>(memory.device);
  auto cache = received_;
  std::shared_ptr<void> result(memory.pointer, [owner, cache, handle](void* pointer) {
    {
      const std::lock_guard<std::mutex> guard(cache->mutex);
      const auto entry = cache->memory.find(handle);
      if (entry != cache->memory.end() && entry->second.expired()) cache->memory.erase(entry);
    }
    try {
      // Closing waits for the streams that are recorded.
      const plinth_stream_t current = c10::cuda::getCurrentCUDAStream(owner).stream();
      plinth_pluggable_record_stream(pointer, current == nullptr ? PLINTH_STREAM_DEFAULT_OF(owner) : current);
      check(plinth_ipc_close(pointer));
    } catch (const std::exception& error) {
      warn("closing CUDA memory of another process", error);
    }
  });
  received_->memory[handle] = result;
  return result;
}

caching::ShareableHandle Allocator::shareIpcHandle(void* pointer) { return sharing_.share(pointer); }

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) { return sharing_.receive(handle); }

void Allocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) {
  check(plinth_enable_peer_access(device, peer));
}

cudaError_t Allocator::memcpyAsync(void* destination, int destination_device, const void* source, int source_device,
                                   size_t count, cudaStream_t stream, bool p2p_enabled) {
  // Memory that is mapped from handles is copied between devices without peer access only by the call that names them.
  if (destination_device == source_device || p2p_enabled) {
    return cudaMemcpyAsync(destination, source, count, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(destination, destination_device, source, source_device, count, stream);
}

}  // namespace plinth_torch
