// cuda::barrier, and copies that it waits for. A copy is complete when the function that begins it returns.
#pragma once
#include <cuda/std/utility>
#include <plinth_host/phase_barrier.h>
#include <plinth_host/thread_scope.h>
#include <plinth_host/warp.h>

namespace plinth_host {
struct NoCompletion {
  void operator()() noexcept {}
};
}  // namespace plinth_host

namespace cuda {
// A size in bytes, of memory that is aligned to Alignment bytes.
template <size_t Alignment>
struct aligned_size_t {
  static_assert(Alignment != 0 && (Alignment & (Alignment - 1)) == 0, "an alignment is a power of two");
  static constexpr size_t align = Alignment;
  size_t value;
  explicit constexpr aligned_size_t(size_t size) : value(size) {}
  constexpr operator size_t() const { return value; }
};

template <thread_scope Scope, typename Completion = plinth_host::NoCompletion>
class barrier {
 public:
  class arrival_token {
    friend class barrier;
    unsigned phase_;
    explicit arrival_token(plinth_host::PhaseWord word) : phase_(plinth_host::phase_of(word)) {}
  };

  // Without a value, as a variable in shared memory; init() gives it one.
  barrier() = default;
  explicit barrier(::ptrdiff_t expected, Completion completion = Completion()) : completion_(completion) {
    plinth_host::initialize_phase(&word_, static_cast<plinth_host::PhaseWord>(expected));
  }
  barrier(const barrier &) = delete;
  barrier &operator=(const barrier &) = delete;

  static constexpr ::ptrdiff_t max() noexcept { return plinth_host::kMaxArrivals; }

  friend void init(barrier *self, ::ptrdiff_t expected, Completion completion = Completion()) {
    self->completion_ = completion;
    plinth_host::initialize_phase(&self->word_, static_cast<plinth_host::PhaseWord>(expected));
  }

  [[nodiscard]] arrival_token arrive(::ptrdiff_t count = 1, PLINTH_SITE) {
    return arrival_token(arrive_as(count, 0, site));
  }
  void wait(arrival_token &&token) const { plinth_host::wait_for_phase(&word_, token.phase_); }
  void wait_parity(bool parity) const { plinth_host::wait_for_parity(&word_, parity); }
  void arrive_and_wait(PLINTH_SITE) { wait(arrival_token(arrive_as(1, 0, site))); }
  void arrive_and_drop(PLINTH_SITE) { arrive_as(1, 1, site); }

  // Others run before each answer, so that a loop of these calls comes to an end.
  bool try_wait(arrival_token &&token) const {
    if (plinth_host::is_phase(&word_, token.phase_)) plinth_host::yield();
    return !plinth_host::is_phase(&word_, token.phase_);
  }
  bool try_wait_parity(bool parity) const {
    if (plinth_host::is_parity(&word_, parity)) plinth_host::yield();
    return !plinth_host::is_parity(&word_, parity);
  }

 private:
  plinth_host::PhaseWord arrive_as(::ptrdiff_t count, plinth_host::PhaseWord dropped, plinth_host::Site site) {
    return plinth_host::arrive_at_phase(
        &word_, static_cast<plinth_host::PhaseWord>(count), dropped, [this] { completion_(); }, site);
  }

  plinth_host::PhaseWord word_;
  Completion completion_;
};

namespace std {
template <typename Completion = plinth_host::NoCompletion>
using barrier = ::cuda::barrier<thread_scope_system, Completion>;
}  // namespace std

// Copies `size` bytes. The next phase of the barrier that the caller arrives at completes after the copy.
template <typename Size, thread_scope Scope, typename Completion>
inline void memcpy_async(void *to, const void *from, Size size, barrier<Scope, Completion> &) {
  __builtin_memmove(to, from, static_cast<size_t>(size));
}
template <typename Group, typename Size, thread_scope Scope, typename Completion>
inline void memcpy_async(const Group &group, void *to, const void *from, Size size, barrier<Scope, Completion> &) {
  plinth_host::copy_for_group(group, to, from, static_cast<size_t>(size));
}
}  // namespace cuda
