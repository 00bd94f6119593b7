/*
 * Helpers of the tests of the C++ headers: expected errors, and tensors with numbers in them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef WRAPPING_H
#define WRAPPING_H

#include "allocating.h"

#include <plinth.hpp>

#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/* The text of the last error that `expect_error` caught. */
static inline std::string &caught_text() {
  static std::string text;
  return text;
}

template <class Call>
void expect_error(plinth_status_t status, const char *text, const char *file, int line, Call &&call) {
  try {
    call();
  } catch (const plinth::Error &error) {
    caught_text() = error.what();
    if (error.status() != status) {
      const std::string message = std::string(text) + " throws " + error.name() + ": " + error.what();
      harness_fail(file, line, message.c_str());
    }
    return;
  }
  harness_fail(file, line, (std::string(text) + " throws nothing").c_str());
}

/* An expression that must throw plinth::Error with this status. */
#define THROWS(expression, status) \
  expect_error((status), #expression, __FILE__, __LINE__, [&] { static_cast<void>(expression); })

/* An expression that must throw this type. */
#define THROWS_TYPE(expression, Type)                                          \
  do {                                                                         \
    bool wrapping_thrown = false;                                              \
    try {                                                                      \
      static_cast<void>(expression);                                           \
    } catch (const Type &) {                                                   \
      wrapping_thrown = true;                                                  \
    }                                                                          \
    if (!wrapping_thrown) {                                                    \
      harness_fail(__FILE__, __LINE__, #expression " does not throw a " #Type); \
    }                                                                          \
  } while (0)

/* Owners are movable without exceptions and not copyable. */
template <class Owner>
constexpr bool owns() {
  return std::is_nothrow_move_constructible<Owner>::value && std::is_nothrow_move_assignable<Owner>::value &&
         !std::is_copy_constructible<Owner>::value && !std::is_copy_assignable<Owner>::value;
}

/* Guards of a scope are neither. */
template <class Block>
constexpr bool is_block() {
  return !std::is_move_constructible<Block>::value && !std::is_move_assignable<Block>::value;
}

/* Moves an object to itself, without the compiler's warning. */
template <class Owner>
void move_to_itself(Owner &owner) {
  Owner *const same = &owner;
  owner = std::move(*same);
}

/* A one-dimensional tensor in a device's memory. */
template <class T>
struct Row {
  explicit Row(const std::vector<T> &numbers, std::int32_t device = 0)
      : memory((numbers.size() + 1) * sizeof(T), plinth::StreamView(), device),
        shape{static_cast<std::int64_t>(numbers.size())},
        tensor(plinth::tensor_view(memory.as<T>(), shape, device)) {
    plinth::copy(memory.get(), numbers.data(), numbers.size() * sizeof(T));
  }
  Row(const Row &) = delete;
  Row &operator=(const Row &) = delete;

  /* Returns the numbers once all streams of the device are done. */
  std::vector<T> read() const {
    std::vector<T> numbers(static_cast<std::size_t>(shape[0]));
    plinth::synchronize(tensor.device.device_id);
    plinth::copy(numbers.data(), memory.get(), numbers.size() * sizeof(T));
    return numbers;
  }

  plinth::DeviceBuffer memory;
  plinth::Shape<1> shape;
  DLTensor tensor;
};

#endif
