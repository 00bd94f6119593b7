// plinth.hpp: return values, exceptions, guards, and views that cannot be constructed from integers.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "wrapping.h"

#include <plinth.hpp>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Expressions that must not compile.
static_assert(!std::is_constructible<plinth::StreamView, int>::value, "a view from an int");
static_assert(!std::is_constructible<plinth::StreamView, long>::value, "a view from a long");
static_assert(!std::is_constructible<plinth::StreamView, std::uintptr_t>::value, "a view from an address");
static_assert(!std::is_constructible<plinth::StreamView, std::nullptr_t>::value, "a view from nullptr");
static_assert(!std::is_convertible<std::int32_t, plinth::Stream>::value, "a device number as a stream");
static_assert(!std::is_copy_constructible<plinth::Event>::value, "an event copied");
static_assert(!std::is_copy_assignable<plinth::Event>::value, "an event copied");
static_assert(!std::is_copy_constructible<plinth::DeviceGuard>::value, "a guard copied");
static_assert(!std::is_copy_constructible<plinth::StreamGuard>::value, "a guard copied");
static_assert(!std::is_convertible<std::int32_t, plinth::DeviceGuard>::value, "a number as a guard");

// Expressions that must compile.
static_assert(std::is_nothrow_move_constructible<plinth::Event>::value, "an event moved");
static_assert(std::is_convertible<plinth::Stream, plinth::StreamView>::value, "a stream as a view");
static_assert(std::is_convertible<plinth_stream_t, plinth::StreamView>::value, "a handle as a view");
static_assert(sizeof(plinth::StreamView) == sizeof(void *), "a view is a pointer");
static_assert(plinth::StreamView() == nullptr && plinth::StreamView() == plinth_stream_t(), "a view is compared with a handle");

TEST(an_error_carries_status_message_and_code) {
  bool caught = false;
  try {
    plinth::set_device(1000);
  } catch (const plinth::Error &error) {
    caught = true;
    CHECK_EQ(error.status(), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_TEXT(error.name(), "PLINTH_ERROR_INVALID_DEVICE");
    CHECK(std::string(error.what()).find("1000") != std::string::npos);
    CHECK_EQ(error.driver_code(), 0);
  }
  CHECK(caught);
  caught = false;
  try {
    static_cast<void>(plinth::device_malloc(static_cast<std::size_t>(1) << 60));
  } catch (const std::runtime_error &error) {
    caught = true;
    CHECK_EQ(dynamic_cast<const plinth::Error &>(error).driver_code(), 2);
  }
  CHECK(caught);
}

TEST(devices_have_properties) {
  CHECK(plinth::is_available());
  plinth::init();
  CHECK(plinth::is_initialized());
  CHECK(plinth::device_count() > 0);
  CHECK(plinth::device_kind() == plinth::DeviceKind::cuda || plinth::device_kind() == plinth::DeviceKind::host);
  const plinth_device_properties_t properties = plinth::device_properties(0);
  CHECK(plinth::device_name(0) == properties.name);
  CHECK_EQ(plinth::device_capability(0).major, properties.major);
  CHECK_EQ(plinth::device_capability(0).minor, properties.minor);
  const plinth::MemoryInfo memory = plinth::mem_get_info(0);
  CHECK(memory.free_bytes > 0 && memory.free_bytes <= memory.total_bytes);
  CHECK(plinth::arch_list().find("compute_") == 0);
  CHECK(plinth::gencode_flags().find("-gencode") == 0);
}

TEST(a_device_guard_restores_when_the_body_throws) {
  need_devices(2);
  plinth::set_device(0);
  const plinth::DeviceMemory memory = plinth::device_malloc(64, 1);
  CHECK_EQ(plinth::device_of(memory.get()), 1);
  try {
    plinth::DeviceGuard outer(1);
    CHECK_EQ(outer.previous(), 0);
    CHECK_EQ(plinth::current_device(), 1);
    plinth::DeviceGuard unchanged(-1);
    CHECK_EQ(plinth::current_device(), 1);
    throw 1;
  } catch (int) {
  }
  CHECK_EQ(plinth::current_device(), 0);
  {
    const plinth::DeviceGuard guard = plinth::DeviceGuard::of(memory.get());
    CHECK_EQ(plinth::current_device(), 1);
  }
  CHECK_EQ(plinth::current_device(), 0);
}

TEST(a_stream_guard_restores_device_and_streams) {
  const std::int32_t last = plinth::device_count() - 1;
  plinth::set_device(0);
  const plinth::Stream before(0), inner(last);
  plinth::set_stream(before);
  try {
    plinth::StreamGuard guard(inner);
    CHECK(plinth::current_stream() == inner);
    CHECK_EQ(plinth::current_device(), last);
    throw 1;
  } catch (int) {
  }
  CHECK_EQ(plinth::current_device(), 0);
  CHECK(plinth::current_stream() == before);
  if (last > 0) CHECK(plinth::current_stream(last) == plinth::default_stream(last));
}

TEST(streams_run_functions_of_any_kind) {
  const plinth::Stream stream;
  std::vector<int> order;
  for (int i = 0; i < 100; i++) stream.launch([&order, i] { order.push_back(i); });
  auto owned = std::make_unique<int>(100);
  stream.launch([&order, owned = std::move(owned)] { order.push_back(*owned); });
  stream.synchronize();
  CHECK_EQ(order.size(), 101);
  for (int i = 0; i <= 100; i++) CHECK_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(streams_have_priority_device_and_id) {
  const auto range = plinth::Stream::priority_range(0);
  CHECK(range.second < range.first);
  const plinth::Stream stream(0, range.second);
  CHECK_EQ(stream.priority(), range.second);
  CHECK_EQ(stream.device(), 0);
  CHECK(stream.id() % 2 == 1);
  CHECK(!stream.is_capturing() && !plinth::is_current_stream_capturing());
  CHECK(plinth::Stream::external(stream.get(), 0) == stream);
  CHECK(plinth::StreamView() == plinth::default_stream(0));
}

TEST(events_order_and_time) {
  plinth::Event start(plinth::EventFlags::timing | plinth::EventFlags::blocking), end(plinth::EventFlags::timing);
  const plinth::Stream first, second;
  CHECK(start.query() && start.device() == -1 && start.native() == nullptr);
  start.record(first);
  first.sleep(2000000);
  plinth::Event ready;
  first.record(ready);
  second.wait(ready);
  second.wait(first);
  end.record(second);
  end.synchronize();
  CHECK(end.query() && ready.query());
  CHECK(start.elapsed_time(end) > 0.0f);
  CHECK_EQ(start.device(), 0);
}

TEST(an_event_without_a_stream_uses_the_current_one) {
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  gate *const shut = gate_shut(stream.get());
  plinth::Event event;
  event.record();
  CHECK(!event.query());
  gate_open(shut);
  event.synchronize();
  CHECK(event.query());
}

TEST(events_are_moved_not_copied) {
  plinth::Event event;
  const plinth_event_t handle = event.get();
  plinth::Event moved(std::move(event));
  CHECK(moved.get() == handle);
  plinth::Event other;
  other = std::move(moved);
  CHECK(other.get() == handle);
  const plinth_event_t released = other.release();
  CHECK(released == handle && other.get() == nullptr);
  {
    const plinth::Event adopted = plinth::Event::adopt(released);
    CHECK(adopted.query());
  }
  bool done = false;
  CHECK_STATUS(plinth_event_query(handle, &done), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(generators_fill_tensors_and_are_moved) {
  const std::size_t count = 5;
  const plinth::DeviceMemory memory = plinth::device_malloc(count * sizeof(float));
  std::int64_t shape[] = {5};
  DLTensor tensor = {memory.get(), {static_cast<decltype(DLDevice::device_type)>(2), 0}, 1, {2, 32, 1}, shape, nullptr, 0};
  plinth::Generator generator;
  CHECK_EQ(generator.initial_seed(), 67280421310721u);
  generator.manual_seed(42);
  plinth::uniform(tensor, 0.0, 1.0, generator);
  CHECK_EQ(generator.offset(), 4);
  float numbers[count];
  plinth::current_stream().synchronize();
  plinth::copy(numbers, memory.get(), sizeof numbers);
  /* The result of PyTorch's rand with this seed. */
  const double expected[] = {0.6130, 0.0101, 0.3984, 0.0403, 0.1563};
  for (std::size_t index = 0; index < count; index++) {
    CHECK(std::fabs(numbers[index] - expected[index]) < 6e-5);
  }
  plinth::Generator clone = generator.clone();
  plinth::Generator moved(std::move(generator));
  CHECK(moved.state() == clone.state() && moved.get() != clone.get());
  moved.set_offset(0);
  CHECK(moved.state() != clone.state());
  plinth::manual_seed(7);
  CHECK_EQ(plinth::initial_seed(), 7);
  CHECK(plinth::default_generator().state() == plinth::rng_state());
}

TEST(states_of_generators_are_saved_and_shared) {
  plinth::manual_seed_all(11);
  const std::vector<plinth::RngState> states = plinth::rng_state_all();
  CHECK_EQ(states.size(), plinth::device_count());
  plinth::seed_all();
  plinth::seed();
  CHECK(plinth::rng_state_all() != states);
  plinth::set_rng_state_all(states);
  CHECK(plinth::rng_state() == states[0]);
  plinth::Generator one, other;
  one.manual_seed(5);
  const plinth::Generator shared = one.graphsafe_get_state();
  one.set_offset(8);
  CHECK_EQ(shared.offset(), 8);
  other.graphsafe_set_state(one);
  one.set_offset(12);
  CHECK_EQ(other.offset(), 12);
}

TEST(memory_is_filled_and_copied_to_the_host) {
  const std::size_t count = 1000;
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  const plinth::DeviceMemory device = plinth::device_malloc(count * sizeof(float));
  const plinth::PinnedMemory pinned = plinth::pinned_malloc(count * sizeof(float));
  float *const host = static_cast<float *>(pinned.get());
  plinth::fill(static_cast<float *>(device.get()), 1.5f, count);
  plinth::memcpy(host, device.get(), count * sizeof(float));
  stream.synchronize();
  for (std::size_t i = 0; i < count; i++) CHECK(host[i] == 1.5f);
  plinth::memset(device.get(), 0, count * sizeof(float));
  plinth::copy(host, device.get(), count * sizeof(float));
  for (std::size_t i = 0; i < count; i++) CHECK(host[i] == 0.0f);
}

TEST(rows_and_tensors_are_copied) {
  const plinth::DeviceMemory device = plinth::device_malloc(64);
  const std::int32_t numbers[] = {1, -2, 3, 4, -5, 6};
  std::int64_t shape[] = {2, 3}, columns[] = {1, 2};
  const auto on = [&](int kind) { return DLDevice{static_cast<decltype(DLDevice::device_type)>(kind), 0}; };
  const DLTensor host = {const_cast<std::int32_t *>(numbers), on(1), 2, {0, 32, 1}, shape, nullptr, 0};
  const DLTensor turned = {device.get(), on(2), 2, {2, 64, 1}, shape, columns, 0};
  plinth::copy_tensor(turned, host);
  double fetched[6];
  plinth::copy(fetched, device.get(), sizeof fetched);
  for (int row = 0; row < 2; row++) {
    for (int column = 0; column < 3; column++) CHECK(fetched[column * 2 + row] == numbers[row * 3 + column]);
  }
  double first_row[3];
  plinth::memcpy_2d(first_row, sizeof(double), device.get(), 2 * sizeof(double), sizeof(double), 3);
  plinth::current_stream().synchronize();
  for (int column = 0; column < 3; column++) CHECK(first_row[column] == numbers[column]);
}

TEST(the_drivers_functions_are_found_by_type) {
  using GetVersion = int (*)(int *);
  int version = 0;
  const GetVersion get = plinth::driver_entry_point<GetVersion>("cuDriverGetVersion");
  CHECK(get(&version) == 0 && version == plinth::driver_version());
  CHECK(plinth::driver_entry_point<GetVersion>("cuDriverGetVersion", version) != nullptr);
  THROWS(plinth::driver_entry_point<GetVersion>("cuMakeCoffee"), PLINTH_ERROR_INVALID_VALUE);
  plinth::check_error(0);
  THROWS(plinth::check_error(2), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(plinth::is_bf16_supported() && plinth::is_tf32_supported() == plinth::is_bf16_supported(false));
}

TEST(the_sync_debug_mode_is_an_enum) {
  CHECK(plinth::sync_debug_mode() == plinth::SyncDebugMode::standard);
  plinth::init();
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::error);
  bool caught = false;
  try {
    plinth::synchronize();
  } catch (const plinth::Error &error) {
    caught = error.status() == PLINTH_ERROR_WOULD_SYNCHRONIZE;
  }
  CHECK(caught);
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::standard);
  plinth::synchronize();
  CHECK_EQ(plinth::sync_debug_warnings(), 0);
}

TEST(any_callable_may_receive_warnings) {
  plinth::init();
  CHECK(plinth::driver_version() >= 11000);
  std::string warnings;
  plinth::set_sync_debug_callback([&](const char *message) { warnings += message; });
  plinth::set_sync_debug_mode(plinth::SyncDebugMode::warn);
  plinth::synchronize();
  CHECK(!warnings.empty());
  CHECK_EQ(plinth::sync_debug_warnings(), 1);
  const std::size_t length = warnings.size();
  plinth::set_sync_debug_callback(nullptr);
  plinth::synchronize();
  CHECK_EQ(warnings.size(), length);
  CHECK_EQ(plinth::sync_debug_warnings(), 2);
}

TEST(any_callable_may_receive_the_log) {
  std::vector<std::pair<plinth::LogLevel, std::string>> messages;
  plinth::set_log_callback(plinth::LogLevel::debug, [&](plinth::LogLevel level, const char *message) {
    messages.emplace_back(level, message);
  });
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(messages.size(), 1);
  CHECK(messages[0].first == plinth::LogLevel::debug);
  CHECK(messages[0].second.find("plinth_set_device: failed with PLINTH_ERROR_INVALID_DEVICE") == 0);
  plinth::set_log_callback(plinth::LogLevel::debug, [](plinth::LogLevel, const char *message) {
    throw std::runtime_error(message);
  });
  bool caught = false;
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE); /* no function of plinth.hpp: it throws nothing */
  try {
    plinth::init();
  } catch (const std::runtime_error &error) {
    caught = std::string(error.what()).find("plinth_set_device: failed") == 0;
  }
  CHECK(caught);
  /* A function may replace itself, also when it is called during the call that replaces it. */
  plinth::set_log_callback(plinth::LogLevel::debug, [&](plinth::LogLevel, const char *) {
    plinth::set_log_callback(plinth::LogLevel::debug, [&](plinth::LogLevel level, const char *message) {
      messages.emplace_back(level, message);
    });
  });
  THROWS(plinth::set_log_callback(static_cast<plinth::LogLevel>(99), [](plinth::LogLevel, const char *) {}),
         PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(messages.size(), 2);
  plinth::set_log_callback(plinth::LogLevel::warning, nullptr);
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(messages.size(), 2);
}
