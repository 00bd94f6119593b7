/*!
 * @file plinth_registration.hpp
 * @brief Memory that others register, in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_REGISTRATION_HPP
#define PLINTH_REGISTRATION_HPP

#include "plinth_callbacks.hpp"
#include "plinth_core.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! A use that memory can be put to. */
enum class MemoryUse : std::int32_t {
  ipc = PLINTH_MEMORY_USE_IPC,
  ipc_handle = PLINTH_MEMORY_USE_IPC_HANDLE,
  fabric = PLINTH_MEMORY_USE_FABRIC,
  dma_buf = PLINTH_MEMORY_USE_DMA_BUF,
  gpu_direct_rdma = PLINTH_MEMORY_USE_GPU_DIRECT_RDMA,
  nccl = PLINTH_MEMORY_USE_NCCL,
  nccl_window = PLINTH_MEMORY_USE_NCCL_WINDOW
};

/*! What a block can be used for, and why not. */
class MemoryUses {
 public:
  explicit MemoryUses(const void *pointer)
      : uses_(detail::sized_output<plinth_memory_uses_t>(
            [&](plinth_memory_uses_t *out) { return plinth_memory_uses(pointer, out); })) {}

  bool supports(MemoryUse use) const noexcept { return (uses_.supported >> static_cast<unsigned>(use) & 1u) != 0; }
  /*! The reason why the block cannot be used so; empty if it can. */
  std::string reason(MemoryUse use) const {
    const char *text = uses_.reasons[static_cast<std::size_t>(use)];
    return text == nullptr ? std::string() : std::string(text);
  }
  const plinth_memory_uses_t &get() const noexcept { return uses_; }

 private:
  plinth_memory_uses_t uses_;
};

/*! A DMA-BUF. The descriptor belongs to the caller. */
struct DmaBuf {
  std::int32_t descriptor;
  /*! The offset of the first registered byte, and the size, in bytes. */
  std::size_t offset;
  std::size_t size;
};

/*! Keeps memory in its physical place until the destructor. Movable, not copyable. */
class MemoryRegistration {
 public:
  /*! `release` is called before the memory is put to sleep with SleepOptions::release_registrations, from any thread; it
   *  ends the use of the memory by others, and may destroy the registration. The memory sleeps even if it throws. */
  MemoryRegistration(const void *pointer, std::size_t size, const std::string &name = {},
                     std::function<void()> release = {})
      : release_(release ? std::make_unique<Release>(std::move(release)) : nullptr) {
    plinth_memory_registration_options_t options = PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT;
    options.name = name.c_str();
    options.release = release_ == nullptr ? nullptr : &Release::call;
    options.context = release_ == nullptr ? nullptr : release_->context();
    detail::acquire([&] { return plinth_memory_registration_create(pointer, size, &options, &registration_); });
  }
  ~MemoryRegistration() { static_cast<void>(plinth_memory_registration_destroy(registration_)); }
  MemoryRegistration(MemoryRegistration &&other) noexcept
      : release_(std::move(other.release_)), registration_(std::exchange(other.registration_, nullptr)) {}
  MemoryRegistration &operator=(MemoryRegistration &&other) noexcept {
    std::swap(release_, other.release_);
    std::swap(registration_, other.registration_);
    return *this;
  }
  MemoryRegistration(const MemoryRegistration &) = delete;
  MemoryRegistration &operator=(const MemoryRegistration &) = delete;

  plinth_memory_registration_t get() const noexcept { return registration_; }
  plinth_memory_registration_info_t info() const {
    return detail::sized_output<plinth_memory_registration_info_t>(
        [&](plinth_memory_registration_info_t *out) { return plinth_memory_registration_info(registration_, out); });
  }
  DmaBuf dma_buf() const {
    DmaBuf exported{};
    detail::acquire([&] {
      return plinth_memory_registration_dma_buf(registration_, &exported.descriptor, &exported.offset, &exported.size);
    });
    return exported;
  }
  /*! Exports a physical allocation; the caller closes its descriptor. */
  plinth_memory_part_t part(std::uint32_t index,
                            plinth_memory_handle_type_t type = PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR) const {
    return detail::sized_output<plinth_memory_part_t>([&](plinth_memory_part_t *out) {
      return plinth_memory_registration_part(registration_, index, type, out);
    });
  }

 private:
  using Release = detail::Callbacks<void>;

  std::unique_ptr<Release> release_;
  plinth_memory_registration_t registration_ = nullptr;
};

}  // namespace plinth

#endif
#endif
