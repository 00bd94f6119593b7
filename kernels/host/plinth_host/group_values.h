// What reduce.h and scan.h of cooperative groups have in common: the values of all threads of a group, and operators.
#pragma once
#include <cooperative_groups.h>

namespace plinth_host {
// The values of the lanes of a warp that take part.
template <typename T>
struct GatheredValues {
  unsigned present;
  alignas(T) char bytes[kLanes * sizeof(T)];
};

template <typename T>
inline void gather_lanes(Lane *const *lanes, unsigned present) {
  const int first = __builtin_ctz(present);
  GatheredValues<T> &all = *static_cast<GatheredValues<T> *>(lanes[first]->out);
  all.present = present;
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    const int at = __builtin_ctz(rest);
    __builtin_memcpy(all.bytes + at * sizeof(T), lanes[at]->in, sizeof(T));
  }
  for (unsigned rest = present & (present - 1); rest != 0; rest &= rest - 1) {
    __builtin_memcpy(lanes[__builtin_ctz(rest)]->out, &all, sizeof all);
  }
}

// The values of a group by rank. Each thread computes its result of them by itself, in the order in which a GPU's
// threads combine them with shuffles, so that sums of floating-point numbers have the same bits.
template <typename T>
struct GroupValues {
  unsigned count;
  T *values[kLanes];
  GatheredValues<T> gathered;

  template <typename Group>
  GroupValues(const Group &group, const T &value, const char *what, Site site) {
    static_assert(__is_trivially_copyable(T) && sizeof(T) <= 32, "values of a group have at most 32 bytes");
    const unsigned mask = GroupAccess::mask(group);
    Lane mine = {&value, &gathered, 0};
    warp_operation(mask, gather_lanes<T>, mine, site, what);
    count = 0;
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const int at = __builtin_ctz(rest);
      const bool is_present = (gathered.present >> at & 1) != 0;
      values[count++] = is_present ? reinterpret_cast<T *>(gathered.bytes + at * sizeof(T)) : nullptr;
    }
  }
  GroupValues(const GroupValues &) = delete;

  // Combines what is at `to` with what is at `from`. Threads that do not exist have nothing.
  template <typename Operator>
  static void combine(T *&to, T *from, Operator &operation) {
    if (!from) return;
    if (to) {
      *to = operation(*to, *from);
    } else {
      to = from;
    }
  }

  // Combines all values, each with the one at a distance of half of the count, then of a quarter, and so on: as the
  // thread `rank` does when all exchange values with a butterfly. The count is a power of two.
  template <typename Operator>
  T butterfly(unsigned rank, Operator &operation) {
    T *mine[kLanes];
    for (unsigned at = 0; at < count; at++) mine[at] = values[rank ^ at];
    for (unsigned distance = count / 2; distance > 0; distance /= 2) {
      for (unsigned at = 0; at < distance; at++) combine(mine[at], mine[at + distance], operation);
    }
    return *mine[0];
  }

  // Combines the values of the ranks 0 to `rank`, each with the one before it, then with the one two before it, and so
  // on.
  template <typename Operator>
  T prefix(unsigned rank, Operator &operation) {
    T *mine[kLanes];
    for (unsigned at = 0; at <= rank; at++) mine[at] = values[rank - at];
    for (unsigned distance = 1; distance < count; distance *= 2) {
      for (unsigned at = 0; at + distance <= rank; at += 2 * distance) {
        combine(mine[at], mine[at + distance], operation);
      }
    }
    return *mine[0];
  }
};

}  // namespace plinth_host

namespace cooperative_groups {
template <typename T> struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <typename T> struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <typename T> struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <typename T> struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <typename T> struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <typename T> struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

namespace details {
template <typename T> using plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename T, typename Operator, typename Group>
constexpr void check_operator() {
  static_assert(plinth_host::is_of_one_warp<Group>, "the group has to be a tile or a coalesced group");
  typedef decltype(std::declval<Operator &>()(std::declval<T &>(), std::declval<T &>())) Result;
  static_assert(std::is_same<T, plain<Result>>::value, "the result of the operator has the type of its arguments");
}

// Combines a value with that of an atomic, and returns what the atomic held before.
template <typename T, typename Atomic, typename Operator>
inline T update_atomic(Atomic &destination, const T &value, Operator &operation) {
  T before = destination.load(cuda::memory_order_relaxed);
  while (!destination.compare_exchange_weak(before, operation(before, value), cuda::memory_order_relaxed)) {
  }
  return before;
}
}  // namespace details
}  // namespace cooperative_groups
