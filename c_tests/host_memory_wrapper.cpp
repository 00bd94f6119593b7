// plinth_host_memory.hpp and plinth_ipc.hpp: pinned memory in containers, and memory of other processes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: memory_is_sent_to_another_process; forks a child that uses the device

#include "wrapping.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <limits>
#include <list>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>

static_assert(owns<plinth::HostMemory>() && owns<plinth::ManagedMemory>(), "memory");
static_assert(owns<plinth::HostRegistration>(), "a registration");
static_assert(owns<plinth::IpcMemory>() && owns<plinth::IpcExport>(), "memory of other processes");
static_assert(std::is_same<std::allocator_traits<plinth::PinnedAllocator<int>>::rebind_alloc<char>,
                           plinth::PinnedAllocator<char>>::value, "an allocator of another type");
static_assert(std::allocator_traits<plinth::PinnedAllocator<int>>::is_always_equal::value, "allocators without state");

static std::int64_t blocks_in_use() { return static_cast<std::int64_t>(plinth::host_memory_stats().active_requests.current); }

TEST(vectors_are_pinned_and_grow) {
  plinth::PinnedVector<float> numbers;
  for (int index = 0; index < 10000; index++) numbers.push_back(static_cast<float>(index));
  CHECK(plinth::is_pinned(numbers.data()) && plinth::is_pinned(&numbers.back()));
  CHECK_EQ(blocks_in_use(), 1);
  plinth::PinnedVector<float> back(numbers.size());
  const plinth::Stream stream;
  const plinth::DeviceBuffer device(numbers.size() * sizeof(float), stream);
  plinth::memcpy(device.get(), numbers.data(), device.size(), stream);
  plinth::memcpy(back.data(), device.get(), device.size(), stream);
  stream.synchronize();
  CHECK(back == numbers);
  plinth::PinnedVector<float> moved(std::move(numbers));
  numbers = back;
  std::swap(numbers, moved);
  CHECK(numbers == back && moved == back);
}

TEST(other_containers_use_the_allocator) {
  {
    std::list<int, plinth::PinnedAllocator<int>> list;
    std::map<int, int, std::less<int>, plinth::PinnedAllocator<std::pair<const int, int>>> squares;
    for (int index = 0; index < 100; index++) {
      list.push_back(index);
      squares[index] = index * index;
    }
    CHECK_EQ(std::accumulate(list.begin(), list.end(), 0), 4950);
    CHECK(squares.at(9) == 81 && plinth::is_pinned(&squares.at(9)));
    CHECK(blocks_in_use() >= 200);
  }
  CHECK_EQ(blocks_in_use(), 0);
  plinth::PinnedAllocator<double> allocator;
  CHECK(allocator == plinth::PinnedAllocator<char>() && !(allocator != plinth::PinnedAllocator<double>()));
  THROWS_TYPE(allocator.allocate(std::numeric_limits<std::size_t>::max() / 4), std::bad_array_new_length);
  THROWS(allocator.allocate(static_cast<std::size_t>(1) << 57), PLINTH_ERROR_OUT_OF_MEMORY);
}

TEST(memory_is_freed_after_its_streams) {
  const plinth::Stream stream;
  plinth::HostMemory memory = plinth::host_alloc(MIB);
  const void *const address = memory.get();
  CHECK_EQ(plinth::host_memory_stats().active_bytes.current, MIB);
  gate *const shut = gate_shut(stream.get());
  plinth::host_record_stream(memory.get(), stream);
  memory.reset();
  const plinth::HostMemory other = plinth::host_alloc(MIB);
  CHECK(other.get() != address);
  gate_open(shut);
  stream.synchronize();
  THROWS(plinth::host_record_stream(&stream, stream), PLINTH_ERROR_INVALID_POINTER);
}

TEST(pinned_stats_are_available) {
  plinth::reset_peak_host_memory_stats();
  plinth::reset_accumulated_host_memory_stats();
  const plinth::HostMemory memory = plinth::host_alloc(MIB);
  int count = 0;
  std::uint64_t active = 0;
  plinth::host_memory_stats_each([&](const std::string &key, std::uint64_t value) {
    count++;
    if (key == "active_bytes.current") active = value;
  });
  CHECK_EQ(count, 28);
  CHECK_EQ(active, MIB);
  CHECK(plinth::host_memory_stats_as_json().find("\"active_bytes.current\": 1048576") != std::string::npos);
  CHECK(plinth::host_memory_stats_as_json(true).find("\"active_bytes\": {") != std::string::npos);
  THROWS_TYPE(plinth::host_memory_stats_each([](const char *, std::uint64_t) { throw std::logic_error("enough"); }),
              std::logic_error);
  plinth::host_empty_cache();
}

TEST(registrations_end_with_their_object) {
  void *const memory = aligned_alloc(4096, 64 * KIB);
  CHECK(memory != nullptr);
  {
    plinth::HostRegistration registered(memory, 64 * KIB);
    CHECK(plinth::is_pinned(memory));
    plinth::HostRegistration moved(std::move(registered));
    CHECK(registered.get() == nullptr && moved.get() == memory);
    move_to_itself(moved);
    CHECK(plinth::is_pinned(memory));
    THROWS(plinth::HostRegistration(memory, 64 * KIB), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK(!plinth::is_pinned(memory));
  plinth::HostRegistration again(memory, 64 * KIB);
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::error);
  THROWS(again.unregister(), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK(again.get() == memory);
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::standard);
  again.unregister();
  CHECK(again.get() == nullptr);
  CHECK(!plinth::is_pinned(memory));
  free(memory);
}

TEST(managed_memory_has_one_address) {
  try {
    const plinth::ManagedMemory memory = plinth::managed_malloc(4096);
    plinth::memset(memory.get(), 7, 4096);
    plinth::synchronize();
    CHECK_EQ(static_cast<const unsigned char *>(memory.get())[4095], 7);
    CHECK_EQ(plinth::pointer_attributes(memory.get()).kind, PLINTH_MEMORY_MANAGED);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
    SKIP("the device has no managed memory");
  }
}

// The child is forked before this process uses the library.
TEST(memory_is_sent_to_another_process) {
  int sockets[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    plinth::IpcMemory memory = plinth::ipc_receive(sockets[1]);
    plinth::IpcMemory moved(std::move(memory));
    move_to_itself(moved);
    CHECK(memory.get() == nullptr && moved.size() == MIB - 512 && moved.offset() == 512);
    std::vector<unsigned char> seen(moved.size());
    plinth::memcpy(seen.data(), moved.get(), seen.size());
    plinth::current_stream(moved.device()).synchronize();
    CHECK_EQ(pattern_mismatch(seen.data(), seen.size(), 3), seen.size());
    moved.close();
    moved.close();
    _exit(0);
  }
  const plinth::DeviceBuffer buffer(MIB);
  std::vector<unsigned char> bytes(MIB - 512);
  pattern_fill(bytes.data(), bytes.size(), 3);
  plinth::copy(buffer.as<unsigned char>() + 512, bytes.data(), bytes.size());
  plinth::ipc_send(sockets[0], buffer.as<unsigned char>() + 512);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  plinth::ipc_collect();
}

TEST(exports_are_movable_and_freed) {
  const plinth::DeviceBuffer buffer(MIB);
  plinth::IpcExport message(buffer.get());
  plinth::IpcExport moved(std::move(message));
  CHECK(message.size() == 0 && message.bytes() == nullptr);
  CHECK(moved.size() > 0 && moved.bytes() != nullptr);
  move_to_itself(moved);
  const std::vector<std::uint8_t> bytes(moved.bytes(), moved.bytes() + moved.size());
  const std::vector<std::int32_t> descriptors(moved.descriptors(), moved.descriptors() + moved.descriptor_count());
  // A process cannot import its own memory.
  THROWS(plinth::ipc_import(bytes, descriptors), PLINTH_ERROR_INVALID_VALUE);
  const plinth::HostMemory elsewhere = plinth::host_alloc(64);
  THROWS(plinth::IpcExport(elsewhere.get()), PLINTH_ERROR_INVALID_POINTER);
  const plinth::DeviceMemory whole = plinth::device_malloc(MIB);
  const plinth::IpcMemHandle handle = plinth::ipc_mem_handle(static_cast<char *>(whole.get()) + 100);
  CHECK_EQ(handle.offset, 100);
  THROWS(plinth::ipc_mem_handle(elsewhere.get()), PLINTH_ERROR_INVALID_POINTER);
}
