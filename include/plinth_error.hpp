/*!
 * @file plinth_error.hpp
 * @brief Errors as exceptions, and exceptions of the program's functions that the library calls, in C++17. plinth_core.hpp
 *        includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_ERROR_HPP
#define PLINTH_ERROR_HPP

#include "plinth.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pthread.h>

#if __cplusplus < 201703L
#error "plinth's C++ headers need C++17: compile with -std=c++17 or later, or include plinth.h, whose API is C"
#else

namespace plinth {

/*! The exception that every function here throws: the message of plinth_last_error, with the status and the driver's
 *  error code. */
class Error : public std::runtime_error {
 public:
  Error(plinth_status_t status, const std::string &message, std::int32_t driver_code)
      : std::runtime_error(message), status_(status), driver_code_(driver_code) {}

  /*! One of the PLINTH_ERROR_ constants. */
  plinth_status_t status() const noexcept { return status_; }
  /*! The status as text, for example "PLINTH_ERROR_OUT_OF_MEMORY". */
  const char *name() const noexcept { return plinth_status_name(status_); }
  /*! The CUresult, or 0 if the error did not come from the driver. */
  std::int32_t driver_code() const noexcept { return driver_code_; }

 private:
  plinth_status_t status_;
  std::int32_t driver_code_;
};

/*! The Error with the status PLINTH_ERROR_OUT_OF_MEMORY, of device or host memory. */
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

namespace detail {
/*! The number of a thread, which no later thread gets, unlike a std::thread::id. */
using ThreadNumber = std::uint64_t;
constexpr ThreadNumber any_thread = 0;
inline ThreadNumber this_thread() noexcept {
  static std::atomic<ThreadNumber> last{any_thread};
  static thread_local const ThreadNumber number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

/*! A mutex for which nothing waits in a forked child if a thread of the parent held it at the fork. */
class Mutex {
 public:
  /*! Locks it. What the mutex protects is not accessible if the result owns no lock. */
  std::unique_lock<std::recursive_mutex> lock() {
    const unsigned now = forks();
    if (forks_.load(std::memory_order_acquire) == now) return std::unique_lock<std::recursive_mutex>(mutex_);
    std::unique_lock<std::recursive_mutex> lock(mutex_, std::try_to_lock);
    if (lock) forks_.store(now, std::memory_order_release);
    return lock;
  }

 private:
  /*! The number of forks that led from the first caller's process to this one. */
  static unsigned forks() noexcept {
    static std::atomic<unsigned> count{0};
    static const int counts = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(counts);
    return count.load(std::memory_order_relaxed);
  }

  std::recursive_mutex mutex_;
  std::atomic<unsigned> forks_{forks()};
};

/*! Exceptions of functions that the library called, until check() throws them in their thread. */
class CallbackExceptions {
 public:
  /*! Calls a function, and stores its exception for a thread. Returns whether the function returned. */
  template <class Function>
  static bool run(ThreadNumber thread, Function &&function) noexcept {
    try {
      std::forward<Function>(function)();
      return true;
    } catch (...) {
      store(thread, std::current_exception());
      return false;
    }
  }

  /*! Throws the first stored exception of the calling thread, and forgets its others. */
  static void rethrow() {
    State &state = now();
    if (state.count.load(std::memory_order_acquire) != 0) rethrow_from(state);
  }

 private:
  struct State {
    std::atomic<std::size_t> count{0};
    Mutex mutex;
    std::map<ThreadNumber, std::exception_ptr> first;
  };
  /*! Never destroyed: threads may call while the process exits. */
  static State &now() {
    static State &state = *new State;
    return state;
  }
  static void store(ThreadNumber thread, std::exception_ptr exception) noexcept {
    State &state = now();
    const auto lock = state.mutex.lock();
    if (!lock) return;
    try {
      state.first.emplace(thread, std::move(exception));
    } catch (const std::bad_alloc &) {
      // Without memory for it, the exception is lost.
    }
    state.count.store(state.first.size(), std::memory_order_release);
  }
  static void rethrow_from(State &state) {
    std::exception_ptr exception;
    {
      const auto lock = state.mutex.lock();
      if (!lock) return;
      auto found = state.first.find(this_thread());
      if (found == state.first.end()) found = state.first.find(any_thread);
      if (found == state.first.end()) return;
      exception = std::move(found->second);
      state.first.erase(found);
      state.count.store(state.first.size(), std::memory_order_release);
    }
    std::rethrow_exception(exception);
  }
};
}  // namespace detail

/*! Throws what a function of the program has thrown in the meantime, see the top of this file; otherwise the error of
 *  the calling thread's last call, unless its status is PLINTH_OK. */
inline void check(plinth_status_t status) {
  detail::CallbackExceptions::rethrow();
  if (status == PLINTH_OK) return;
  if (status == PLINTH_ERROR_OUT_OF_MEMORY) {
    throw OutOfMemoryError(status, plinth_last_error(), plinth_last_driver_error());
  }
  throw Error(status, plinth_last_error(), plinth_last_driver_error());
}

namespace detail {
/*! A function for the device to call, with the thread that gets its exception. */
template <class Function>
struct HostFunction {
  Function function;
  ThreadNumber thread = this_thread();

  /*! The function pointer for the library. */
  static void call(void *context) noexcept {
    HostFunction &held = *static_cast<HostFunction *>(context);
    CallbackExceptions::run(held.thread, held.function);
  }
  /*! The same for a function that is called once, which then is destroyed. */
  static void call_once(void *context) noexcept {
    const std::unique_ptr<HostFunction> held(static_cast<HostFunction *>(context));
    CallbackExceptions::run(held->thread, held->function);
  }
};

/*! Keeps an object until the process ends: also while other threads use it during the exit. */
inline void keep_forever(std::shared_ptr<void> object) {
  static Mutex &mutex = *new Mutex;
  static std::vector<std::shared_ptr<void>> &objects = *new std::vector<std::shared_ptr<void>>;
  const auto lock = mutex.lock();
  if (!lock) return;
  objects.push_back(std::move(object));
}

/*! Calls a C function that gives the program something to release, or takes something from it, which must not be lost to
 *  the exception of another function: throws that before the call, or leaves it to a later one. */
template <class Call, class... Outputs>
void acquire(Call &&call, Outputs *...outputs) {
  CallbackExceptions::rethrow();
  const plinth_status_t status = std::forward<Call>(call)(outputs...);
  if (status != PLINTH_OK) check(status);
}

/*! Ends a scope; throws if it has ended, because the library would end what encloses it. */
inline void end_once(bool &open, const char *message) {
  if (!std::exchange(open, false)) throw Error(PLINTH_ERROR_INVALID_VALUE, message, 0);
}

/*! Calls a C function with one output, and returns the output. */
template <class T, class Call>
T output(Call &&call) {
  T value{};
  acquire(std::forward<Call>(call), &value);
  return value;
}

struct StringFree {
  void operator()(char *text) const noexcept { plinth_string_free(text); }
};

template <class Call>
std::string text(Call &&call) {
  std::unique_ptr<char, StringFree> owned(output<char *>(std::forward<Call>(call)));
  return std::string(owned.get());
}

/*! Returns the output struct of a call, after setting its struct_size. */
template <class Struct, class Call>
Struct sized_output(Call &&call) {
  Struct out{};
  out.struct_size = sizeof out;
  acquire(std::forward<Call>(call), &out);
  return out;
}
/*! Wraps a function of the program that the library calls during an iteration. Exceptions must not pass through the
 *  library: an exception of the function is stored, the function is not called again, and finish() rethrows it. */
template <class Function>
class Visit {
 public:
  explicit Visit(Function &function) noexcept : function_(function) {}

  static Visit &of(void *context) noexcept { return *static_cast<Visit *>(context); }

  /*! Returns whether the function was called and returned normally. */
  template <class... Arguments>
  bool show(const Arguments &...arguments) noexcept {
    if (thrown_) return false;
    try {
      function_(arguments...);
      return true;
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }

  void finish(plinth_status_t status) const {
    if (thrown_) std::rethrow_exception(thrown_);
    check(status);
  }

 private:
  Function &function_;
  std::exception_ptr thrown_;
};
}  // namespace detail

}  // namespace plinth

#endif

#endif /* PLINTH_ERROR_HPP */
