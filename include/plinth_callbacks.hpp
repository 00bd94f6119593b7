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
#include <utility>

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
    const std::lock_guard<std::mutex> lock(table.mutex);
    number_ = ++table.last;
    table.functions.emplace(number_, std::move(held));
  }
  ~Callbacks() {
    Table &table = all();
    std::shared_ptr<const Function> held;
    const std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.functions.find(number_);
    held = std::move(found->second);
    table.functions.erase(found);
  }
  Callbacks(const Callbacks &) = delete;
  Callbacks &operator=(const Callbacks &) = delete;

  void *context() const noexcept { return reinterpret_cast<void *>(number_); }

  /*! The function pointer for the library. The function must not throw. */
  static Result call(Arguments... arguments, void *context) noexcept {
    std::shared_ptr<const Function> held;
    {
      Table &table = all();
      const std::lock_guard<std::mutex> lock(table.mutex);
      const auto found = table.functions.find(reinterpret_cast<std::uintptr_t>(context));
      if (found != table.functions.end()) held = found->second;
    }
    if (held && *held) return (*held)(arguments...);
    return Result();
  }

 private:
  struct Table {
    std::mutex mutex;
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
  using Told = Callbacks<void, Arguments...>;

  /*! Replaces the function; an empty one removes the callback. */
  static void set(typename Told::Function function, plinth_status_t (*call)(void (*)(Arguments..., void *), void *)) {
    std::unique_ptr<Told> next;
    if (function) next = std::make_unique<Told>(std::move(function));
    State &state = now();
    const std::lock_guard<std::mutex> lock(state.mutex);
    check(next ? call(&Told::call, next->context()) : call(nullptr, nullptr));
    state.told.swap(next);
  }

 private:
  struct State {
    std::mutex mutex;
    std::unique_ptr<Told> told;
  };
  static State &now() {
    static State &state = *new State;
    return state;
  }
};

}  // namespace detail

/*! Sets the callback for the warnings of SyncDebugMode::warn: `function(const char *message)`; an empty function
 *  removes it. It may be called by several threads at once, and must not throw. */
inline void set_sync_debug_callback(std::function<void(const char *)> function) {
  detail::Listener<const char *>::set(std::move(function), plinth_set_sync_debug_callback);
}
inline std::uint64_t sync_debug_warnings() { return detail::output<std::uint64_t>(plinth_sync_debug_warnings); }

}  // namespace plinth

#endif /* PLINTH_CALLBACKS_HPP */
