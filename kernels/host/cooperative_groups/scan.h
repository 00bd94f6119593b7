// Scans of a group: every thread gets the combination of the values of the threads before it, and of its own if the
// scan is inclusive. The first thread gets T() of an exclusive scan.
#pragma once
#include <cuda/atomic>
#include <plinth_host/group_values.h>

namespace cooperative_groups {
namespace details {
template <bool is_inclusive, typename T, typename Group, typename Operator>
inline T scan(const Group &group, const T &value, Operator &operation, plinth_host::Site site) {
  check_operator<T, Operator, Group>();
  const char *const name = is_inclusive ? "cooperative_groups::inclusive_scan" : "cooperative_groups::exclusive_scan";
  plinth_host::GroupValues<T> values(group, value, name, site);
  const unsigned rank = unsigned(group.thread_rank());
  if (is_inclusive) return values.prefix(rank, operation);
  return rank == 0 ? T() : values.prefix(rank - 1, operation);
}

// Combines the value that an atomic held before with the scan. The atomic receives its combination with all values.
template <bool is_inclusive, typename T, typename Group, typename Atomic, typename Operator>
inline T scan_update(const Group &group, Atomic &destination, const T &value, Operator &operation,
                     plinth_host::Site site) {
  const T inclusive = scan<true>(group, value, operation, site);
  const unsigned rank = unsigned(group.thread_rank()), last = unsigned(group.num_threads()) - 1;
  T before = inclusive;
  if (rank == last) before = update_atomic(destination, inclusive, operation);
  before = group.shfl(before, int(last), site);
  if (is_inclusive) return operation(before, inclusive);
  const T exclusive = group.shfl_up(inclusive, 1, site);
  return rank == 0 ? before : operation(before, exclusive);
}
}  // namespace details

#define PLINTH_SCAN(name, is_inclusive)                                                                            \
  template <typename Group, typename T, typename Operator>                                                         \
  inline auto name(const Group &group, T &&value, Operator &&operation, PLINTH_SITE)                               \
      ->decltype(operation(value, value)) {                                                                        \
    return details::scan<is_inclusive, details::plain<T>>(group, value, operation, site);                          \
  }                                                                                                                \
  template <typename Group, typename T>                                                                            \
  inline details::plain<T> name(const Group &group, T &&value, PLINTH_SITE) {                                      \
    plus<details::plain<T>> operation;                                                                             \
    return details::scan<is_inclusive, details::plain<T>>(group, value, operation, site);                          \
  }                                                                                                                \
  template <typename Group, typename T, typename Value, cuda::thread_scope scope, typename Operator>               \
  inline T name##_update(const Group &group, cuda::atomic<T, scope> &destination, Value &&value,                   \
                         Operator &&operation, PLINTH_SITE) {                                                      \
    return details::scan_update<is_inclusive, T>(group, destination, value, operation, site);                      \
  }                                                                                                                \
  template <typename Group, typename T, typename Value, cuda::thread_scope scope>                                  \
  inline T name##_update(const Group &group, cuda::atomic<T, scope> &destination, Value &&value, PLINTH_SITE) {    \
    plus<T> operation;                                                                                             \
    return details::scan_update<is_inclusive, T>(group, destination, value, operation, site);                      \
  }                                                                                                                \
  template <typename Group, typename T, typename Value, cuda::thread_scope scope, typename Operator>               \
  inline T name##_update(const Group &group, const cuda::atomic_ref<T, scope> &destination, Value &&value,         \
                         Operator &&operation, PLINTH_SITE) {                                                      \
    return details::scan_update<is_inclusive, T>(group, destination, value, operation, site);                      \
  }                                                                                                                \
  template <typename Group, typename T, typename Value, cuda::thread_scope scope>                                  \
  inline T name##_update(const Group &group, const cuda::atomic_ref<T, scope> &destination, Value &&value,         \
                         PLINTH_SITE) {                                                                            \
    plus<T> operation;                                                                                             \
    return details::scan_update<is_inclusive, T>(group, destination, value, operation, site);                      \
  }
PLINTH_SCAN(inclusive_scan, true)
PLINTH_SCAN(exclusive_scan, false)
#undef PLINTH_SCAN
}  // namespace cooperative_groups
