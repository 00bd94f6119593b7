// Reductions of a group.
#pragma once
#include <cuda/atomic>
#include <plinth_host/group_values.h>

namespace cooperative_groups {
// Combines the values of all threads of a tile or a coalesced group. All receive the result.
template <typename Group, typename T, typename Operator>
inline auto reduce(const Group &group, T &&value, Operator &&operation, PLINTH_SITE)
    -> decltype(operation(value, value)) {
  typedef details::plain<T> Value;
  details::check_operator<Value, Operator, Group>();
  plinth_host::GroupValues<Value> values(group, value, "cooperative_groups::reduce", site);
  if (plinth_host::is_tile<Group> || values.count == plinth_host::kLanes) {
    return values.butterfly(group.thread_rank(), operation);
  }
  return values.prefix(values.count - 1, operation);
}

// Combines the values of all threads and combines an atomic with the result.
template <typename Group, typename T, cuda::thread_scope scope, typename Value, typename Operator>
inline void reduce_update_async(const Group &group, cuda::atomic<T, scope> &destination, Value &&value,
                                Operator &&operation, PLINTH_SITE) {
  const T total = reduce(group, static_cast<const T &>(value), operation, site);
  if (group.thread_rank() == 0) details::update_atomic(destination, total, operation);
}
template <typename Group, typename T, cuda::thread_scope scope, typename Value, typename Operator>
inline void reduce_update_async(const Group &group, const cuda::atomic_ref<T, scope> &destination, Value &&value,
                                Operator &&operation, PLINTH_SITE) {
  const T total = reduce(group, static_cast<const T &>(value), operation, site);
  if (group.thread_rank() == 0) details::update_atomic(destination, total, operation);
}

// Combines the values of all threads and stores the result.
template <typename Group, typename T, cuda::thread_scope scope, typename Value, typename Operator>
inline void reduce_store_async(const Group &group, cuda::atomic<T, scope> &destination, Value &&value,
                               Operator &&operation, PLINTH_SITE) {
  const T total = reduce(group, static_cast<const T &>(value), operation, site);
  if (group.thread_rank() == 0) destination.store(total, cuda::memory_order_relaxed);
}
template <typename Group, typename T, cuda::thread_scope scope, typename Value, typename Operator>
inline void reduce_store_async(const Group &group, const cuda::atomic_ref<T, scope> &destination, Value &&value,
                               Operator &&operation, PLINTH_SITE) {
  const T total = reduce(group, static_cast<const T &>(value), operation, site);
  if (group.thread_rank() == 0) destination.store(total, cuda::memory_order_relaxed);
}
template <typename Group, typename T, typename Value, typename Operator>
inline void reduce_store_async(const Group &group, T *destination, Value &&value, Operator &&operation, PLINTH_SITE) {
  const T total = reduce(group, static_cast<const T &>(value), operation, site);
  if (group.thread_rank() == 0) *destination = total;
}
}  // namespace cooperative_groups
