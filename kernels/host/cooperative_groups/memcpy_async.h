// Copies by a group. A copy is complete when all threads of the group have waited for it.
#pragma once
#include <cooperative_groups.h>
#include <plinth_host/phase_barrier.h>

namespace cooperative_groups {
// Copies `size` bytes.
template <typename Group, typename T, typename Size>
inline void memcpy_async(const Group &group, T *to, const T *from, const Size &size) {
  plinth_host::copy_for_group(group, to, from, static_cast<size_t>(size));
}

// Copies as many elements as both arrays have.
template <typename Group, typename T, typename ToCount, typename FromCount>
inline void memcpy_async(const Group &group, T *to, const ToCount &to_count, const T *from,
                         const FromCount &from_count) {
  const size_t left = static_cast<size_t>(to_count), right = static_cast<size_t>(from_count);
  plinth_host::copy_for_group(group, to, from, (left < right ? left : right) * sizeof(T));
}

// Waits for all copies of the group but the last `Stage` ones.
template <unsigned Stage, typename Group>
inline void wait_prior(const Group &group, PLINTH_SITE) {
  group.sync(site);
}
template <typename Group>
inline void wait(const Group &group, PLINTH_SITE) {
  group.sync(site);
}
}  // namespace cooperative_groups
