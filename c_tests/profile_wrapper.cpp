// plinth_profile.hpp: ranges that end with their scope, and telemetry of devices. What a tool receives is tested in
// tests/nvtx.rs; without a tool the depths are counted nevertheless.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "wrapping.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

static_assert(owns<plinth::nvtx::Domain>() && owns<plinth::nvtx::Range>(), "a domain and a range");
static_assert(owns<plinth::TelemetrySampler>(), "a sampler");
static_assert(is_block<plinth::nvtx::ScopedRange>() && is_block<plinth::nvtx::DeviceRange>(), "blocks");
static_assert(is_block<plinth::ProfilerGuard>(), "a block");

using std::chrono::milliseconds;

TEST(ranges_nest_and_end_with_exceptions) {
  plinth::nvtx::Domain domain("plinth tests");
  domain.name_category(2, "steps");
  THROWS(domain.name_category(0, "none"), PLINTH_ERROR_INVALID_VALUE);
  plinth::nvtx::Domain moved(std::move(domain));
  move_to_itself(moved);
  try {
    const plinth::nvtx::ScopedRange epoch("epoch");
    CHECK_EQ(epoch.depth(), 0);
    {
      const plinth::nvtx::ScopedRange step("step");
      CHECK_EQ(step.depth(), 1);
    }
    const plinth::nvtx::ScopedRange step(moved, plinth::nvtx::Event("step").category(2).color(0xFF00FF00).payload(17));
    CHECK_EQ(step.depth(), plinth::nvtx::is_active() ? 0 : 1);
    plinth::nvtx::mark("here");
    moved.mark(plinth::nvtx::Event("there"));
    throw 1;
  } catch (int) {
  }
  const plinth::nvtx::ScopedRange next("epoch");
  CHECK_EQ(next.depth(), 0);
}

TEST(events_have_their_attributes) {
  const plinth::nvtx::Event plain("plain");
  CHECK(plain.get()->struct_size == sizeof(plinth_nvtx_event_t) && std::string(plain.get()->message) == "plain");
  CHECK(!plain.get()->has_color && !plain.get()->has_payload && plain.get()->category == 0);
  const plinth::nvtx::Event full = plinth::nvtx::Event("full").category(3).color(0x12345678).payload(-4);
  CHECK(full.get()->category == 3 && full.get()->color == 0x12345678 && full.get()->payload == -4);
  CHECK(full.get()->has_color && full.get()->has_payload);
  THROWS(plinth::nvtx::mark(nullptr), PLINTH_ERROR_NULL_POINTER);
}

TEST(ranges_of_threads_and_streams) {
  plinth::nvtx::name_thread("the main one");
  plinth::nvtx::annotate_calls(true);
  plinth::nvtx::Range range("from here");
  CHECK((range.id() != 0) == plinth::nvtx::is_active());
  const std::uint64_t id = range.id();
  plinth::nvtx::Range moved(std::move(range));
  CHECK(range.id() == 0 && moved.id() == id);
  move_to_itself(moved);
  CHECK_EQ(moved.id(), id);
  std::thread([&] { moved.end(); }).join();
  CHECK_EQ(moved.id(), 0);
  const plinth::Stream stream;
  {
    const plinth::nvtx::DeviceRange work("work", stream);
    CHECK((work.id() != 0) == plinth::nvtx::is_active());
    stream.sleep(1000);
  }
  stream.synchronize();
  plinth::nvtx::annotate_calls(false);
  plinth::nvtx::Domain domain("plinth tests");
  plinth::nvtx::Range other(domain, plinth::nvtx::Event("there"));
  other.end();
  other.end();
}

TEST(the_profiler_guard_starts_and_stops) {
  plinth::init();
  try {
    const plinth::ProfilerGuard guard;
    throw 1;
  } catch (int) {
  } catch (const plinth::Error &error) {
    // A profiler that is attached may not allow it.
    CHECK_EQ(error.status(), PLINTH_ERROR_DRIVER);
  }
  plinth::synchronize();
}

// Checks a reading that a machine may not support.
template <class Reading>
static void maybe(const plinth::Telemetry &all, std::uint32_t bit, Reading reading) {
  try {
    reading();
    CHECK((all.valid & bit) != 0);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
    CHECK((all.valid & bit) == 0);
  }
}

TEST(telemetry_of_devices) {
  const plinth::DeviceMemory memory = plinth::device_malloc(MIB, 0);
  const plinth::Telemetry all = plinth::read_telemetry(0);
  CHECK_EQ(all.struct_size, sizeof all);
  maybe(all, PLINTH_TELEMETRY_UTILIZATION, [] { CHECK(plinth::utilization() <= 100); });
  maybe(all, PLINTH_TELEMETRY_MEMORY_USAGE, [] { CHECK(plinth::memory_usage(0) <= 100); });
  maybe(all, PLINTH_TELEMETRY_TEMPERATURE, [] { CHECK(plinth::temperature() < 150); });
  maybe(all, PLINTH_TELEMETRY_POWER_DRAW, [] { CHECK(plinth::power_draw() < 2000000); });
  maybe(all, PLINTH_TELEMETRY_CLOCK_RATE, [] { CHECK(plinth::clock_rate() < 10000); });
  maybe(all, PLINTH_TELEMETRY_ENERGY, [&] { CHECK(plinth::energy_used() >= all.energy); });
  maybe(all, PLINTH_TELEMETRY_THROTTLE_REASONS, [] { static_cast<void>(plinth::throttle_reasons()); });
  maybe(all, PLINTH_TELEMETRY_MEMORY_USED, [&] { CHECK(plinth::device_memory_used() > 0 && all.memory_used > 0); });
  CHECK(plinth::throttle_reasons_text(PLINTH_THROTTLE_IDLE | PLINTH_THROTTLE_POWER_CAP) == "idle, power cap");
  THROWS(plinth::utilization(1000), PLINTH_ERROR_INVALID_DEVICE);
  THROWS(plinth::read_telemetry(1000), PLINTH_ERROR_INVALID_DEVICE);
}

TEST(processes_are_listed) {
  const plinth::DeviceMemory memory = plinth::device_malloc(MIB);
  try {
    const std::string text = plinth::list_gpu_processes(0);
    CHECK(text.find("GPU:") == 0);
    const std::vector<plinth_gpu_process_t> processes = plinth::gpu_processes(0);
    if (on_host_device()) {
      const auto own = [](const plinth_gpu_process_t &process) { return process.pid == static_cast<std::uint32_t>(getpid()); };
      CHECK(std::any_of(processes.begin(), processes.end(), own));
      CHECK(text.find(std::to_string(getpid())) != std::string::npos);
    }
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
  }
}

TEST(samplers_return_readings_in_order) {
  plinth::TelemetrySampler sampler(milliseconds(1), 4096, 0);
  plinth::TelemetrySampler moved(std::move(sampler));
  CHECK(sampler.get() == nullptr);
  move_to_itself(moved);
  std::vector<plinth::Telemetry> all;
  EVENTUALLY(([&] {
    const std::vector<plinth::Telemetry> some = moved.take();
    all.insert(all.end(), some.begin(), some.end());
    return all.size() >= 100;
  }()));
  for (std::size_t index = 1; index < all.size(); index++) CHECK(all[index].time_us > all[index - 1].time_us);
  // More readings than one call of the library returns.
  EVENTUALLY(([&] {
    sleep_milliseconds(150);
    return moved.take().size() > 64;
  }()));
  plinth::TelemetrySampler small(milliseconds(1), 2, 0);
  plinth::Telemetry last[8];
  plinth::TelemetrySampler::Taken taken{};
  EVENTUALLY(([&] {
    sleep_milliseconds(20);
    taken = small.take(last, 8);
    return taken.lost > 0;
  }()));
  CHECK(taken.count <= 2);
  THROWS(plinth::TelemetrySampler(milliseconds(0)), PLINTH_ERROR_INVALID_VALUE);
  THROWS_TYPE(plinth::TelemetrySampler(milliseconds(-1)), std::invalid_argument);
  THROWS(sampler.take(), PLINTH_ERROR_NULL_POINTER);
}
