// A barrier with phases in a word of memory, for cuda::barrier, pipelines and __mbarrier_t. Threads of one block wait
// with yield(), so any thread may be the last.
#pragma once
#include <plinth_host/atomic.h>

namespace plinth_host {
// The word: 24 bits with the number of arrivals that the phase still needs, 24 with what every phase needs, 16 with the
// number of the phase.
typedef unsigned long long PhaseWord;
constexpr PhaseWord kMaxArrivals = (1u << 20) - 1;
constexpr int kExpectedShift = 24, kPhaseShift = 48;
constexpr PhaseWord kCountMask = (PhaseWord(1) << kExpectedShift) - 1;

static inline PhaseWord pending_of(PhaseWord word) { return word & kCountMask; }
static inline PhaseWord expected_of(PhaseWord word) { return word >> kExpectedShift & kCountMask; }
static inline unsigned phase_of(PhaseWord word) { return unsigned(word >> kPhaseShift); }
static inline PhaseWord make_phase(unsigned phase, PhaseWord expected, PhaseWord pending) {
  return PhaseWord(phase & 0xffffu) << kPhaseShift | expected << kExpectedShift | pending;
}

static inline void initialize_phase(PhaseWord *word, PhaseWord expected) {
  __atomic_store_n(word, make_phase(0, expected, expected), __ATOMIC_RELEASE);
}

// Arrives `count` times, and expects `dropped` arrivals fewer in the phases that follow. The last arrival of a phase
// calls `complete` and begins the next phase. Returns the word as it was before.
template <typename Completion>
inline PhaseWord arrive_at_phase(PhaseWord *word, PhaseWord count, PhaseWord dropped, Completion &&complete,
                                 Site site) {
  PhaseWord before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
  do {
    if (count > pending_of(before) || dropped > expected_of(before)) {
      trap("more threads arrive at a barrier than its phase expects", site);
    }
    after = make_phase(phase_of(before), expected_of(before) - dropped, pending_of(before) - count);
  } while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  if (pending_of(after) == 0) {
    self().owner->time++;
    complete();
    __atomic_store_n(word, make_phase(phase_of(after) + 1, expected_of(after), expected_of(after)), __ATOMIC_RELEASE);
  }
  return before;
}

static inline PhaseWord arrive_at_phase(PhaseWord *word, PhaseWord count, PhaseWord dropped, Site site) {
  return arrive_at_phase(word, count, dropped, [] {}, site);
}

static inline bool is_phase(const PhaseWord *word, unsigned phase) {
  return phase_of(__atomic_load_n(word, __ATOMIC_ACQUIRE)) == (phase & 0xffffu);
}
// Returns whether the phase with a parity is the current one, so that it has not completed.
static inline bool is_parity(const PhaseWord *word, bool parity) {
  return ((phase_of(__atomic_load_n(word, __ATOMIC_ACQUIRE)) & 1u) != 0) == parity;
}
static inline void wait_for_phase(const PhaseWord *word, unsigned phase) {
  while (is_phase(word, phase)) yield();
}
static inline void wait_for_parity(const PhaseWord *word, bool parity) {
  while (is_parity(word, parity)) yield();
}

// Copies for a group, or for a thread: the first thread of a group copies everything.
template <typename Group>
inline void copy_for_group(const Group &group, void *to, const void *from, size_t size) {
  if (group.thread_rank() == 0) __builtin_memmove(to, from, size);
}
}  // namespace plinth_host
