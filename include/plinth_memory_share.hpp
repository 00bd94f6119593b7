/*!
 * @file plinth_memory_share.hpp
 * @brief A device that processes share, in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_MEMORY_SHARE_HPP
#define PLINTH_MEMORY_SHARE_HPP

#include "plinth_core.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! How a process shares a device. */
struct MemoryShareOptions {
  /*! The most bytes that the allocator holds; 0 for all of the device. */
  std::size_t budget = 0;
  /*! The bytes that the process is not asked for. */
  std::size_t floor = 0;
  /*! The name of the processes that share with each other. */
  std::string name{};
};

using MemoryShareInfo = plinth_memory_share_info_t;

/*! Begins to share a device with other processes of this user, or changes the budget and the floor. */
inline void memory_share_enable(const MemoryShareOptions &options = {}, std::int32_t device = -1) {
  plinth_memory_share_options_t converted = PLINTH_MEMORY_SHARE_OPTIONS_INIT;
  converted.budget = options.budget;
  converted.floor = options.floor;
  converted.name = options.name.c_str();
  check(plinth_memory_share_enable(device, &converted));
}
inline void memory_share_disable(std::int32_t device = -1) { check(plinth_memory_share_disable(device)); }
inline MemoryShareInfo memory_share_info(std::int32_t device = -1) {
  return detail::sized_output<MemoryShareInfo>(
      [&](MemoryShareInfo *out) { return plinth_memory_share_info(device, out); });
}

}  // namespace plinth

#endif
#endif
