// Operations of a warp: shuffles, votes, matches, reductions. Every lane brings its value and the place of its result;
// the last lane that arrives computes the results of all. If the lane that a shuffle reads from takes no part, CUDA
// leaves the result undefined; here it is the caller's own value.
#pragma once
#include <plinth_host/execution.h>

// The place in the kernel from which an operation was called, for reports of divergent lanes.
#define PLINTH_SITE plinth_host::Site site = plinth_host::Site::here()

namespace plinth_host {
enum class Shuffle { index, up, down, exchange };
enum class Vote { all, any, uniform, ballot };
enum class Reduction { add, minimum, maximum, conjunction, disjunction, exclusive };

constexpr const char *name_of(Shuffle kind) {
  return kind == Shuffle::index  ? "__shfl_sync"
         : kind == Shuffle::up   ? "__shfl_up_sync"
         : kind == Shuffle::down ? "__shfl_down_sync"
                                 : "__shfl_xor_sync";
}
constexpr const char *name_of(Vote kind) {
  return kind == Vote::all       ? "__all_sync"
         : kind == Vote::any     ? "__any_sync"
         : kind == Vote::uniform ? "__uni_sync"
                                 : "__ballot_sync";
}

template <bool condition, typename T = void> struct EnableIf {};
template <typename T> struct EnableIf<true, T> { typedef T type; };

// The types that a shuffle takes beside CUDA's overloads for numbers: half and bfloat16 types, and small structs.
template <typename T>
struct IsShuffled {
  static constexpr bool value = (__is_class(T) || __is_union(T)) && __is_trivially_copyable(T) && sizeof(T) <= 16;
};

static inline unsigned lanes_below() { return (1u << lane()) - 1; }

// Computes the lane that the calling lane reads from, as PTX defines it for the instruction `shfl.sync`: only the low
// five bits of the operand count, and a lane beyond the caller's segment of `width` lanes is replaced by the caller.
static inline unsigned shuffle_source(Shuffle kind, unsigned operand, int width) {
  const unsigned self = lane(), segment = (32u - unsigned(width)) & 31u, first = self & segment;
  const unsigned last = first | (31u & ~segment), distance = operand & 31u;
  switch (kind) {
    case Shuffle::up:
      return int(self) - int(distance) >= int(first) ? self - distance : self;
    case Shuffle::down:
      return self + distance <= last ? self + distance : self;
    case Shuffle::exchange:
      return (self ^ distance) <= last ? self ^ distance : self;
    default:
      return first | (distance & ~segment);
  }
}

// The kind is a parameter, so that lanes that shuffle in different ways have different operations.
template <Shuffle, unsigned long size>
static inline void shuffle_lanes(Lane *const *lanes, unsigned present) {
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    const unsigned at = unsigned(__builtin_ctz(rest)), from = unsigned(lanes[at]->argument);
    __builtin_memcpy(lanes[at]->out, lanes[(present >> from & 1) != 0 ? from : at]->in, size);
  }
}

template <Shuffle kind, typename T>
static inline T shuffle_from(unsigned mask, const T &value, unsigned from, Site site) {
  static_assert(__is_trivially_copyable(T), "a shuffle copies the bytes of a value");
  T result = value;
  Lane mine = {&value, &result, long(from)};
  warp_operation(mask, shuffle_lanes<kind, sizeof(T)>, mine, site, name_of(kind));
  return result;
}

template <Shuffle kind, typename T>
static inline T shuffle(unsigned mask, const T &value, unsigned operand, int width, Site site) {
  return shuffle_from<kind>(mask, value, shuffle_source(kind, operand, width), site);
}

struct Votes {
  unsigned set, present;
};

template <Vote>
static inline void collect_votes(Lane *const *lanes, unsigned present) {
  Votes votes = {0, present};
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    const unsigned at = unsigned(__builtin_ctz(rest));
    if (lanes[at]->argument != 0) votes.set |= 1u << at;
  }
  for (unsigned rest = present; rest != 0; rest &= rest - 1) {
    *static_cast<Votes *>(lanes[__builtin_ctz(rest)]->out) = votes;
  }
}

template <Vote kind>
static inline Votes vote(unsigned mask, bool predicate, Site site) {
  Votes votes = {0, 0};
  Lane mine = {nullptr, &votes, predicate ? 1 : 0};
  warp_operation(mask, collect_votes<kind>, mine, site, name_of(kind));
  return votes;
}

template <bool all, typename T>
static inline void match_lanes(Lane *const *lanes, unsigned present) {
  for (unsigned rest = present; rest != 0;) {
    const int first = __builtin_ctz(rest);
    unsigned same = 0;
    for (unsigned others = rest; others != 0; others &= others - 1) {
      const int at = __builtin_ctz(others);
      if (__builtin_memcmp(lanes[first]->in, lanes[at]->in, sizeof(T)) == 0) same |= 1u << at;
    }
    const unsigned result = all && same != present ? 0 : same;
    for (unsigned others = same; others != 0; others &= others - 1) {
      *static_cast<unsigned *>(lanes[__builtin_ctz(others)]->out) = result;
    }
    rest &= ~same;
  }
}

// Returns the lanes whose bits are those of `value`: 0.0 and -0.0 differ, and a NaN matches the same NaN. With `all`,
// returns 0 if a lane has other bits.
template <bool all, typename T>
static inline unsigned match(unsigned mask, const T &value, Site site) {
  unsigned result = 0;
  Lane mine = {&value, &result, 0};
  warp_operation(mask, match_lanes<all, T>, mine, site, all ? "__match_all_sync" : "__match_any_sync");
  return result;
}

template <Reduction kind, typename T>
static inline void reduce_lanes(Lane *const *lanes, unsigned present) {
  T total = *static_cast<const T *>(lanes[__builtin_ctz(present)]->in);
  for (unsigned rest = present & (present - 1); rest != 0; rest &= rest - 1) {
    const T value = *static_cast<const T *>(lanes[__builtin_ctz(rest)]->in);
    switch (kind) {
      case Reduction::add:
        total = T(unsigned(total) + unsigned(value));
        break;
      case Reduction::minimum:
        total = value < total ? value : total;
        break;
      case Reduction::maximum:
        total = total < value ? value : total;
        break;
      case Reduction::conjunction:
        total = T(total & value);
        break;
      case Reduction::disjunction:
        total = T(total | value);
        break;
      case Reduction::exclusive:
        total = T(total ^ value);
        break;
    }
  }
  for (unsigned rest = present; rest != 0; rest &= rest - 1) *static_cast<T *>(lanes[__builtin_ctz(rest)]->out) = total;
}

template <Reduction kind, typename T>
static inline T reduce(unsigned mask, T value, const char *name, Site site) {
  T result = value;
  Lane mine = {&value, &result, 0};
  warp_operation(mask, reduce_lanes<kind, T>, mine, site, name);
  return result;
}

static inline void synchronize_lanes(Lane *const *, unsigned) {}

static inline void synchronize_warp(unsigned mask, Site site) {
  Lane mine = {nullptr, nullptr, 0};
  warp_operation(mask, synchronize_lanes, mine, site, "__syncwarp");
}

struct BlockVote {
  bool predicate;
  unsigned set, present;
};

template <Vote>
static inline void collect_block_votes(void *const *arguments, unsigned count) {
  unsigned set = 0;
  for (unsigned at = 0; at < count; at++) set += static_cast<BlockVote *>(arguments[at])->predicate ? 1 : 0;
  for (unsigned at = 0; at < count; at++) {
    static_cast<BlockVote *>(arguments[at])->set = set;
    static_cast<BlockVote *>(arguments[at])->present = count;
  }
}

template <Vote kind>
static inline BlockVote block_vote(bool predicate, Site site) {
  BlockVote mine = {predicate, 0, 0};
  block_operation(collect_block_votes<kind>, &mine, site, "__syncthreads_count, _and or _or");
  return mine;
}
}  // namespace plinth_host

#define PLINTH_SHUFFLES(type)                                                                                  \
  static inline type __shfl_sync(unsigned mask, type value, int source, int width = warpSize, PLINTH_SITE) {   \
    return plinth_host::shuffle<plinth_host::Shuffle::index>(mask, value, unsigned(source), width, site);      \
  }                                                                                                            \
  static inline type __shfl_up_sync(unsigned mask, type value, unsigned delta, int width = warpSize, PLINTH_SITE) {\
    return plinth_host::shuffle<plinth_host::Shuffle::up>(mask, value, delta, width, site);                    \
  }                                                                                                            \
  static inline type __shfl_down_sync(unsigned mask, type value, unsigned delta, int width = warpSize, PLINTH_SITE) {\
    return plinth_host::shuffle<plinth_host::Shuffle::down>(mask, value, delta, width, site);                  \
  }                                                                                                            \
  static inline type __shfl_xor_sync(unsigned mask, type value, int lanes, int width = warpSize, PLINTH_SITE) {\
    return plinth_host::shuffle<plinth_host::Shuffle::exchange>(mask, value, unsigned(lanes), width, site);    \
  }
#define PLINTH_MATCHES(type)                                                                                   \
  static inline unsigned __match_any_sync(unsigned mask, type value, PLINTH_SITE) {                            \
    return plinth_host::match<false>(mask, value, site);                                                       \
  }                                                                                                            \
  static inline unsigned __match_all_sync(unsigned mask, type value, int *predicate, PLINTH_SITE) {            \
    const unsigned same = plinth_host::match<true>(mask, value, site);                                         \
    *predicate = same != 0;                                                                                    \
    return same;                                                                                               \
  }
#define PLINTH_NUMBER(type) PLINTH_SHUFFLES(type) PLINTH_MATCHES(type)
PLINTH_NUMBER(int)
PLINTH_NUMBER(unsigned)
PLINTH_NUMBER(long)
PLINTH_NUMBER(unsigned long)
PLINTH_NUMBER(long long)
PLINTH_NUMBER(unsigned long long)
PLINTH_NUMBER(float)
PLINTH_NUMBER(double)
#undef PLINTH_NUMBER
#undef PLINTH_MATCHES
#undef PLINTH_SHUFFLES

#define PLINTH_SHUFFLE(name, kind, operand)                                                                    \
  template <typename T>                                                                                        \
  static inline typename plinth_host::EnableIf<plinth_host::IsShuffled<T>::value, T>::type name(               \
      unsigned mask, T value, operand lanes, int width = warpSize, PLINTH_SITE) {                              \
    return plinth_host::shuffle<plinth_host::Shuffle::kind>(mask, value, unsigned(lanes), width, site);        \
  }
PLINTH_SHUFFLE(__shfl_sync, index, int)
PLINTH_SHUFFLE(__shfl_up_sync, up, unsigned)
PLINTH_SHUFFLE(__shfl_down_sync, down, unsigned)
PLINTH_SHUFFLE(__shfl_xor_sync, exchange, int)
#undef PLINTH_SHUFFLE

#define PLINTH_REDUCE(name, kind, type)                                                                        \
  static inline type name(unsigned mask, type value, PLINTH_SITE) {                                            \
    return plinth_host::reduce<plinth_host::Reduction::kind>(mask, value, #name, site);                        \
  }
PLINTH_REDUCE(__reduce_add_sync, add, unsigned)
PLINTH_REDUCE(__reduce_add_sync, add, int)
PLINTH_REDUCE(__reduce_min_sync, minimum, unsigned)
PLINTH_REDUCE(__reduce_min_sync, minimum, int)
PLINTH_REDUCE(__reduce_max_sync, maximum, unsigned)
PLINTH_REDUCE(__reduce_max_sync, maximum, int)
PLINTH_REDUCE(__reduce_and_sync, conjunction, unsigned)
PLINTH_REDUCE(__reduce_or_sync, disjunction, unsigned)
PLINTH_REDUCE(__reduce_xor_sync, exclusive, unsigned)
#undef PLINTH_REDUCE

static inline int __all_sync(unsigned mask, int predicate, PLINTH_SITE) {
  const plinth_host::Votes votes = plinth_host::vote<plinth_host::Vote::all>(mask, predicate != 0, site);
  return votes.set == votes.present;
}
static inline int __any_sync(unsigned mask, int predicate, PLINTH_SITE) {
  return plinth_host::vote<plinth_host::Vote::any>(mask, predicate != 0, site).set != 0;
}
// Returns whether the predicates of all lanes are equal.
static inline int __uni_sync(unsigned mask, int predicate, PLINTH_SITE) {
  const plinth_host::Votes votes = plinth_host::vote<plinth_host::Vote::uniform>(mask, predicate != 0, site);
  return votes.set == 0 || votes.set == votes.present;
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, PLINTH_SITE) {
  return plinth_host::vote<plinth_host::Vote::ballot>(mask, predicate != 0, site).set;
}
static inline unsigned __activemask(PLINTH_SITE) { return plinth_host::active_mask(site); }
static inline void __syncwarp(unsigned mask = 0xffffffffu, PLINTH_SITE) { plinth_host::synchronize_warp(mask, site); }

static __forceinline__ void __syncthreads(PLINTH_SITE) { plinth_host::block_barrier(site); }
// The barrier 0 is that of __syncthreads().
static inline void __barrier_sync(unsigned id, PLINTH_SITE) {
  if (id == 0) return plinth_host::block_barrier(site);
  plinth_host::named_barrier(id, plinth_host::block_threads(), site);
}
static inline void __barrier_sync_count(unsigned id, unsigned threads, PLINTH_SITE) {
  if (id == 0) return plinth_host::block_barrier(site);
  plinth_host::named_barrier(id, threads, site);
}
static inline int __syncthreads_count(int predicate, PLINTH_SITE) {
  return int(plinth_host::block_vote<plinth_host::Vote::ballot>(predicate != 0, site).set);
}
static inline int __syncthreads_and(int predicate, PLINTH_SITE) {
  const plinth_host::BlockVote votes = plinth_host::block_vote<plinth_host::Vote::all>(predicate != 0, site);
  return votes.set == votes.present;
}
static inline int __syncthreads_or(int predicate, PLINTH_SITE) {
  return plinth_host::block_vote<plinth_host::Vote::any>(predicate != 0, site).set != 0;
}

// Returns the position of a set bit of `mask`: with a positive offset the offset-th one from `base` upward, with a
// negative one from `base` downward, with 0 `base` itself; 0xffffffff if there is none.
static inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  const int step = offset < 0 ? -1 : 1;
  long long left = offset < 0 ? -static_cast<long long>(offset) : offset == 0 ? 1 : offset;
  for (long long at = base; at >= 0 && at < 32; at += step) {
    if ((mask >> at & 1) != 0 && --left == 0) return unsigned(at);
    if (offset == 0) break;
  }
  return 0xffffffffu;
}

// The time is not waited for: what a program waits for is another thread, which runs now.
static inline void __nanosleep(unsigned) { plinth_host::yield(); }
