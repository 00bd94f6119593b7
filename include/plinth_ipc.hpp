/*!
 * @file plinth_ipc.hpp
 * @brief Memory shared between processes in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_IPC_HPP
#define PLINTH_IPC_HPP

#include "plinth_core.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! Memory of another process, closed by the destructor. Movable, not copyable. */
class IpcMemory {
 public:
  /*! Takes ownership of memory of plinth_ipc_receive or plinth_ipc_import. */
  explicit IpcMemory(const plinth_ipc_memory_t &memory) noexcept : memory_(memory) {}
  ~IpcMemory() { static_cast<void>(plinth_ipc_close(memory_.pointer)); }
  IpcMemory(IpcMemory &&other) noexcept : memory_(std::exchange(other.memory_, plinth_ipc_memory_t{})) {}
  IpcMemory &operator=(IpcMemory &&other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  IpcMemory(const IpcMemory &) = delete;
  IpcMemory &operator=(const IpcMemory &) = delete;

  /*! The address that corresponds to the pointer that the other process exported. */
  void *get() const noexcept { return memory_.pointer; }
  /*! The bytes from get() to the end of the block. */
  std::size_t size() const noexcept { return memory_.size; }
  /*! The offset of get() from the beginning of the block, in bytes. */
  std::size_t offset() const noexcept { return memory_.offset; }
  std::int32_t device() const noexcept { return memory_.device; }

  /*! Closes the memory now, and throws on errors, after which it is still open. */
  void close() {
    detail::acquire([&] { return plinth_ipc_close(memory_.pointer); });
    memory_ = plinth_ipc_memory_t{};
  }

 private:
  plinth_ipc_memory_t memory_;
};

/*! A message that describes exported memory, for a program with its own channel; freed by the destructor. Movable,
 *  not copyable. */
class IpcExport {
 public:
  explicit IpcExport(const void *pointer)
      : message_(detail::sized_output<plinth_ipc_export_t>(
            [&](plinth_ipc_export_t *out) { return plinth_ipc_export(pointer, out); })) {}
  ~IpcExport() { static_cast<void>(plinth_ipc_export_free(&message_)); }
  IpcExport(IpcExport &&other) noexcept : message_(std::exchange(other.message_, plinth_ipc_export_t PLINTH_IPC_EXPORT_INIT)) {}
  IpcExport &operator=(IpcExport &&other) noexcept {
    std::swap(message_, other.message_);
    return *this;
  }
  IpcExport(const IpcExport &) = delete;
  IpcExport &operator=(const IpcExport &) = delete;

  const std::uint8_t *bytes() const noexcept { return message_.bytes; }
  std::size_t size() const noexcept { return message_.size; }
  /*! The file descriptors of the message, in order. */
  const std::int32_t *descriptors() const noexcept { return message_.descriptors; }
  std::size_t descriptor_count() const noexcept { return message_.descriptor_count; }

 private:
  plinth_ipc_export_t message_;
};

inline void ipc_send(std::int32_t socket, const void *pointer) { check(plinth_ipc_send(socket, pointer)); }
inline IpcMemory ipc_receive(std::int32_t socket, std::int32_t device = -1) {
  return IpcMemory(detail::sized_output<plinth_ipc_memory_t>(
      [&](plinth_ipc_memory_t *out) { return plinth_ipc_receive(socket, device, out); }));
}
/*! `bytes` and `descriptors` are contiguous containers of std::uint8_t and std::int32_t. */
template <class Bytes, class Descriptors>
IpcMemory ipc_import(const Bytes &bytes, const Descriptors &descriptors, std::int32_t device = -1) {
  return IpcMemory(detail::sized_output<plinth_ipc_memory_t>([&](plinth_ipc_memory_t *out) {
    return plinth_ipc_import(std::data(bytes), std::size(bytes), std::data(descriptors), std::size(descriptors), device,
                             out);
  }));
}
inline void ipc_collect() { check(plinth_ipc_collect()); }

/* ---- CUDA's own handles ---- */

/*! A cudaIpcMemHandle_t, and the offset of the pointer from the beginning of the memory that the handle opens. */
struct IpcMemHandle {
  std::array<std::uint8_t, PLINTH_IPC_MEM_HANDLE_SIZE> bytes;
  std::size_t offset;
};

inline IpcMemHandle ipc_mem_handle(const void *pointer) {
  IpcMemHandle handle{};
  check(plinth_ipc_mem_handle(pointer, handle.bytes.data(), &handle.offset));
  return handle;
}

namespace detail {
struct IpcCloseMemHandle {
  void operator()(void *memory) const noexcept { static_cast<void>(plinth_ipc_close_mem_handle(memory)); }
};
}  // namespace detail

/*! Memory that was opened by its CUDA IPC handle. */
using IpcMappedMemory = std::unique_ptr<void, detail::IpcCloseMemHandle>;

inline IpcMappedMemory ipc_open_mem_handle(const IpcMemHandle &handle, std::int32_t device = -1) {
  return IpcMappedMemory(detail::output<void *>(
      [&](void **out) { return plinth_ipc_open_mem_handle(device, handle.bytes.data(), out); }));
}

}  // namespace plinth

#endif

#endif /* PLINTH_IPC_HPP */
