/*!
 * @file plinth_memory_sleep.hpp
 * @brief Memory that sleeps and wakes, in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_MEMORY_SLEEP_HPP
#define PLINTH_MEMORY_SLEEP_HPP

#include "plinth_core.hpp"
#include "plinth_memory.hpp"

#include <cstdint>
#include <string>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! Where the contents of sleeping memory are kept. */
enum class Backup : std::int32_t {
  none = PLINTH_BACKUP_NONE,
  pinned = PLINTH_BACKUP_PINNED,
  pageable = PLINTH_BACKUP_PAGEABLE,
  file = PLINTH_BACKUP_FILE
};

/*! How memory sleeps. */
struct SleepOptions {
  Backup backup = Backup::none;
  /*! Whether to wait for the devices, rather than fail, if they have work. */
  bool wait = true;
  /*! The folder of a file; empty for that of temporary files. */
  std::string folder{};
  /*! Whether to end the registrations of the memory first, rather than fail. */
  bool release_registrations = false;
  /*! Whether to release the workspaces of cuBLAS, and memory that is cached in other pools. */
  bool release_workspaces = false;
};

using SleepInfo = plinth_sleep_info_t;

namespace detail {
template <class Call>
void with_sleep_options(const SleepOptions &options, Call &&call) {
  plinth_sleep_options_t converted = PLINTH_SLEEP_OPTIONS_INIT;
  converted.backup = static_cast<plinth_backup_t>(options.backup);
  converted.flags = (options.wait ? 0 : PLINTH_SLEEP_NO_WAIT) |
                    (options.release_registrations ? PLINTH_SLEEP_RELEASE_REGISTRATIONS : 0) |
                    (options.release_workspaces ? PLINTH_SLEEP_RELEASE_WORKSPACES : 0);
  converted.folder = options.folder.empty() ? nullptr : options.folder.c_str();
  check(call(&converted));
}
}  // namespace detail

/*! Releases the physical memory of the pools with these tags, separated by commas, and keeps their addresses. An empty
 *  text stands for every pool that has a tag, here and below. */
inline void memory_sleep(const std::string &tags = {}, const SleepOptions &options = {}) {
  detail::with_sleep_options(
      options, [&](const plinth_sleep_options_t *converted) { return plinth_memory_sleep(tags.c_str(), converted); });
}

/*! Maps memory again, in the order of the tags, and restores the contents. */
inline void memory_wake(const std::string &tags = {}) { check(plinth_memory_wake(tags.c_str())); }

/*! Does the same without a wait for copies from pinned memory; call memory_wake_wait for each stream that uses it. */
inline void memory_wake_async(const std::string &tags = {}) { check(plinth_memory_wake_async(tags.c_str())); }

/*! Makes later work of a stream wait until the contents are restored on its device. */
inline void memory_wake_wait(const std::string &tags = {}, StreamView stream = StreamView::current()) {
  check(plinth_memory_wake_wait(tags.c_str(), stream.get()));
}

/*! Allocates backups ahead, which stay over cycles until memory_free_backup. */
inline void memory_alloc_backup(const std::string &tags, const SleepOptions &options) {
  detail::with_sleep_options(options, [&](const plinth_sleep_options_t *converted) {
    return plinth_memory_alloc_backup(tags.c_str(), converted);
  });
}
inline void memory_free_backup(const std::string &tags = {}) { check(plinth_memory_free_backup(tags.c_str())); }

/*! Returns what sleeps. */
inline SleepInfo memory_sleep_info(const std::string &tags = {}) {
  return detail::sized_output<SleepInfo>(
      [&](SleepInfo *out) { return plinth_memory_sleep_info(tags.c_str(), out); });
}

}  // namespace plinth

#endif
#endif
