/*!
 * @file plinth_callbacks.hpp
 * @brief Functions of the program's that the library calls, in C++17. plinth.hpp includes it.
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

/*! A function that the library may call from any thread, as long as this lives. The library gets a number in place of an
 *  address, so that a call which another thread has under way at the end finds the function, or that it is gone; the
 *  function lives until such calls have returned. */
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

  /*! What the library is given. The function must not throw. */
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
  /*! Never destroyed: threads may call while the process ends. */
  static Table &all() {
    static Table &table = *new Table;
    return table;
  }

  std::uintptr_t number_ = 0;
};

/*! Who is told of something of which the process tells one. */
template <class... Arguments>
class Listener {
 public:
  using Told = Callbacks<void, Arguments...>;

  /*! Puts a function in the place of the one before; an empty one is nobody. */
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

/*! Sets who is told of the warnings of SyncDebugMode::warn: `function(const char *message)`; an empty function is nobody.
 *  It may be called by several threads at once, and must not throw. */
inline void set_sync_debug_callback(std::function<void(const char *)> function) {
  detail::Listener<const char *>::set(std::move(function), plinth_set_sync_debug_callback);
}
inline std::uint64_t sync_debug_warnings() { return detail::output<std::uint64_t>(plinth_sync_debug_warnings); }

}  // namespace plinth

#endif /* PLINTH_CALLBACKS_HPP */
