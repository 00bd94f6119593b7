// Memory shared between processes.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <plinth.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace plinth_torch {

// The blocks that this process shares, and the memory of other processes that it has mapped.
class Sharing {
 public:
  c10::cuda::CUDACachingAllocator::ShareableHandle share(void* pointer);
  std::shared_ptr<void> receive(const std::string& handle);
  // Ends the sharing of a block that was freed.
  void on_free(void* pointer) {
    if (count_.load(std::memory_order_acquire) != 0) end(pointer);
  }

 private:
  struct Export {
    plinth_ipc_export_t message;
    std::string handle;
  };
  struct Received {
    std::mutex mutex;
    std::unordered_map<std::string, std::weak_ptr<void>> memory;
  };

  void end(void* pointer);

  std::mutex mutex_;
  std::unordered_map<void*, Export> exports_;
  std::atomic<size_t> count_{0};
  uint64_t next_ = 0;
  std::shared_ptr<Received> received_ = std::make_shared<Received>();
};

}  // namespace plinth_torch
