/*!
 * @file plinth_callbacks.hpp
 * @brief Callbacks from the library into the program, in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_CALLBACKS_HPP
#define PLINTH_CALLBACKS_HPP

#include "plinth_core.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {
namespace detail {

/*! A function that the library may call from any thread, for the lifetime of the object. The library gets an id
 *  instead of an address: a call that another thread has in progress at destruction finds either the function or
 *  nothing. The function is destroyed after such calls have returned. */
template <class Result, class... Arguments>
class Callbacks {
 public:
  using Function = std::function<Result(Arguments...)>;

  explicit Callbacks(Function function) {
    auto held = std::make_shared<const Function>(std::move(function));
    Table &table = all();
    const auto lock = table.mutex.lock();
    if (!lock) return;
    number_ = ++table.last;
    table.functions.emplace(number_, std::move(held));
  }
  ~Callbacks() {
    Table &table = all();
    std::shared_ptr<const Function> held;
    const auto lock = table.mutex.lock();
    if (!lock) return;
    const auto found = table.functions.find(number_);
    if (found == table.functions.end()) return;
    held = std::move(found->second);
    table.functions.erase(found);
  }
  Callbacks(const Callbacks &) = delete;
  Callbacks &operator=(const Callbacks &) = delete;

  void *context() const noexcept { return reinterpret_cast<void *>(number_); }

  /*! The function pointer for the library. After an exception it returns the default value of the result. */
  static Result call(Arguments... arguments, void *context) noexcept {
    std::shared_ptr<const Function> held;
    {
      Table &table = all();
      const auto lock = table.mutex.lock();
      if (!lock) return Result();
      const auto found = table.functions.find(reinterpret_cast<std::uintptr_t>(context));
      if (found != table.functions.end()) held = found->second;
    }
    if (!held || !*held) return Result();
    const ThreadNumber caller = this_thread();
    if constexpr (std::is_void<Result>::value) {
      CallbackExceptions::run(caller, [&] { (*held)(arguments...); });
    } else {
      Result result{};
      CallbackExceptions::run(caller, [&] { result = (*held)(arguments...); });
      return result;
    }
  }

 private:
  struct Table {
    Mutex mutex;
    std::map<std::uintptr_t, std::shared_ptr<const Function>> functions;
    std::uintptr_t last = 0;
  };
  /*! Never destroyed: threads may call while the process exits. */
  static Table &all() {
    static Table &table = *new Table;
    return table;
  }

  std::uintptr_t number_ = 0;
};

/*! The holder of a process-wide callback. */
template <class... Arguments>
class Listener {
 public:
  using Callback = Callbacks<void, Arguments...>;

  /*! Replaces the function; an empty one removes the callback. `call` is the function of the library that sets it. */
  template <class Set>
  static void set(typename Callback::Function function, Set call) {
    std::unique_ptr<Callback> next;
    if (function) next = std::make_unique<Callback>(std::move(function));
    State &state = now();
    const auto lock = state.mutex.lock();
    void (*const none)(Arguments..., void *) = nullptr;
    Callback *const made = next.get();
    // Before the call, in which the library may call the function that is replaced: that may set another one.
    state.callback.swap(next);
    try {
      acquire([&] { return made ? call(&Callback::call, made->context()) : call(none, nullptr); });
    } catch (...) {
      if (state.callback.get() == made) state.callback.swap(next);
      throw;
    }
  }

 private:
  struct State {
    Mutex mutex;
    std::unique_ptr<Callback> callback;
  };
  static State &now() {
    static State &state = *new State;
    return state;
  }
};

}  // namespace detail

/*! Sets the callback for the warnings of SyncDebugMode::warn: `function(const char *message)`; an empty function
 *  removes it. It may be called by several threads at once. */
inline void set_sync_debug_callback(std::function<void(const char *)> function) {
  detail::Listener<const char *>::set(std::move(function), plinth_set_sync_debug_callback);
}
inline std::uint64_t sync_debug_warnings() { return detail::output<std::uint64_t>(plinth_sync_debug_warnings); }

/*! The importance of a message of the log. */
enum class LogLevel : std::int32_t {
  debug = PLINTH_LOG_DEBUG,
  info = PLINTH_LOG_INFO,
  warning = PLINTH_LOG_WARNING,
  error = PLINTH_LOG_ERROR
};

/*! Sets the callback for the log's messages of `level` and above: `function(LogLevel level, const char *message)`; an
 *  empty function removes it. It may be called by several threads at once, and may call the library. */
inline void set_log_callback(LogLevel level, std::function<void(LogLevel, const char *)> function) {
  std::function<void(std::int32_t, const char *)> typed;
  if (function) {
    typed = [function = std::move(function)](std::int32_t number, const char *message) {
      function(static_cast<LogLevel>(number), message);
    };
  }
  detail::Listener<std::int32_t, const char *>::set(
      std::move(typed), [level](plinth_log_callback_t callback, void *context) {
        return plinth_set_log_callback(static_cast<std::int32_t>(level), callback, context);
      });
}

}  // namespace plinth

#endif

#endif /* PLINTH_CALLBACKS_HPP */
