/*!
 * @file plinth_profile.hpp
 * @brief NVTX and telemetry in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_PROFILE_HPP
#define PLINTH_PROFILE_HPP

#include "plinth_core.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! Marks and ranges for profilers. Strings are not copied here, and no function of this namespace allocates if no
 *  tool is attached. */
namespace nvtx {

inline bool is_active() { return detail::output<bool>(plinth_nvtx_is_active); }
inline void annotate_calls(bool on) { check(plinth_nvtx_annotate_calls(on)); }
inline void name_thread(const char *name) { check(plinth_nvtx_name_thread(name)); }
inline void mark(const char *message) { check(plinth_nvtx_mark(message)); }

/*! The attributes of a mark or a range: `Event("step").category(2).color(0xFF00FF00).payload(17)`. */
class Event {
 public:
  explicit Event(const char *message) noexcept { event_.message = message; }
  Event &category(std::uint32_t number) noexcept {
    event_.category = number;
    return *this;
  }
  /*! The color as 0xAARRGGBB. */
  Event &color(std::uint32_t argb) noexcept {
    event_.color = argb;
    event_.has_color = true;
    return *this;
  }
  Event &payload(std::int64_t number) noexcept {
    event_.payload = number;
    event_.has_payload = true;
    return *this;
  }
  const plinth_nvtx_event_t *get() const noexcept { return &event_; }

 private:
  plinth_nvtx_event_t event_ = PLINTH_NVTX_EVENT_INIT;
};

/*! A domain, destroyed by the destructor; its ranges must have ended before. Movable, not copyable. */
class Domain {
 public:
  explicit Domain(const char *name)
      : domain_(detail::output<plinth_nvtx_domain_t>(
            [&](plinth_nvtx_domain_t *out) { return plinth_nvtx_domain_create(name, out); })) {}
  ~Domain() { static_cast<void>(plinth_nvtx_domain_destroy(domain_)); }
  Domain(Domain &&other) noexcept : domain_(std::exchange(other.domain_, nullptr)) {}
  Domain &operator=(Domain &&other) noexcept {
    std::swap(domain_, other.domain_);
    return *this;
  }
  Domain(const Domain &) = delete;
  Domain &operator=(const Domain &) = delete;

  /*! NULL if no tool is attached. */
  plinth_nvtx_domain_t get() const noexcept { return domain_; }
  void name_category(std::uint32_t category, const char *name) {
    check(plinth_nvtx_name_category(domain_, category, name));
  }
  void mark(const Event &event) const { check(plinth_nvtx_domain_mark(domain_, event.get())); }

 private:
  plinth_nvtx_domain_t domain_;
};

/*! A nested range of the calling thread, for the lifetime of the object. */
class ScopedRange {
 public:
  explicit ScopedRange(const char *message) {
    plinth::detail::acquire([&] { return plinth_nvtx_range_push(message, &depth_); });
  }
  ScopedRange(const Domain &domain, const Event &event) : domain_(domain.get()), of_domain_(true) {
    plinth::detail::acquire([&] { return plinth_nvtx_domain_range_push(domain_, event.get(), &depth_); });
  }
  ~ScopedRange() {
    static_cast<void>(of_domain_ ? plinth_nvtx_domain_range_pop(domain_, nullptr) : plinth_nvtx_range_pop(nullptr));
  }
  ScopedRange(const ScopedRange &) = delete;
  ScopedRange &operator=(const ScopedRange &) = delete;

  /*! The number of enclosing ranges. */
  std::int32_t depth() const noexcept { return depth_; }

 private:
  plinth_nvtx_domain_t domain_ = nullptr;
  std::int32_t depth_ = 0;
  bool of_domain_ = false;
};

/*! A range that any thread may end: by the destructor, or by end(). Movable, not copyable. */
class Range {
 public:
  explicit Range(const char *message)
      : range_(detail::output<std::uint64_t>([&](std::uint64_t *out) { return plinth_nvtx_range_start(message, out); })) {}
  Range(const Domain &domain, const Event &event)
      : domain_(domain.get()), range_(detail::output<std::uint64_t>([&](std::uint64_t *out) {
          return plinth_nvtx_domain_range_start(domain.get(), event.get(), out);
        })) {}
  ~Range() { end(); }
  Range(Range &&other) noexcept : domain_(other.domain_), range_(std::exchange(other.range_, 0)) {}
  Range &operator=(Range &&other) noexcept {
    std::swap(domain_, other.domain_);
    std::swap(range_, other.range_);
    return *this;
  }
  Range(const Range &) = delete;
  Range &operator=(const Range &) = delete;

  /*! 0 if no tool is attached, and after the end. */
  std::uint64_t id() const noexcept { return range_; }
  void end() noexcept {
    const std::uint64_t range = std::exchange(range_, 0);
    if (range == 0) return;
    static_cast<void>(domain_ != nullptr ? plinth_nvtx_domain_range_end(domain_, range) : plinth_nvtx_range_end(range));
  }

 private:
  plinth_nvtx_domain_t domain_ = nullptr;
  std::uint64_t range_ = 0;
};

/*! A range over the work that a stream is given during the object's lifetime. */
class DeviceRange {
 public:
  explicit DeviceRange(const char *message, StreamView stream = current_stream())
      : stream_(stream), range_(detail::output<std::uint64_t>([&](std::uint64_t *out) {
          return plinth_nvtx_device_range_start(message, stream.get(), out);
        })) {}
  ~DeviceRange() { static_cast<void>(plinth_nvtx_device_range_end(range_, stream_.get())); }
  DeviceRange(const DeviceRange &) = delete;
  DeviceRange &operator=(const DeviceRange &) = delete;

  std::uint64_t id() const noexcept { return range_; }

 private:
  StreamView stream_;
  std::uint64_t range_;
};

}  // namespace nvtx

inline void profiler_start() { check(plinth_profiler_start()); }
inline void profiler_stop() { check(plinth_profiler_stop()); }

/*! Lets a waiting profiler record for the lifetime of the object, torch.cuda.profiler.profile. */
class ProfilerGuard {
 public:
  ProfilerGuard() { detail::acquire(plinth_profiler_start); }
  ~ProfilerGuard() { static_cast<void>(plinth_profiler_stop()); }
  ProfilerGuard(const ProfilerGuard &) = delete;
  ProfilerGuard &operator=(const ProfilerGuard &) = delete;
};

/* ---- Telemetry ---- */

using Telemetry = plinth_telemetry_t;

namespace detail {
template <class T>
T reading(plinth_status_t (*call)(std::int32_t, T *), std::int32_t device) {
  return output<T>([&](T *out) { return call(device, out); });
}
}  // namespace detail

/*! Percentage of time in which a kernel ran. */
inline std::uint32_t utilization(std::int32_t device = -1) { return detail::reading(plinth_utilization, device); }
/*! Percentage of time in which memory was read or written. */
inline std::uint32_t memory_usage(std::int32_t device = -1) { return detail::reading(plinth_memory_usage, device); }
/*! The temperature in degrees Celsius. */
inline std::uint32_t temperature(std::int32_t device = -1) { return detail::reading(plinth_temperature, device); }
/*! The power draw in milliwatts. */
inline std::uint32_t power_draw(std::int32_t device = -1) { return detail::reading(plinth_power_draw, device); }
/*! The clock rate of the multiprocessors in MHz. */
inline std::uint32_t clock_rate(std::int32_t device = -1) { return detail::reading(plinth_clock_rate, device); }
/*! Memory in use by all processes, in bytes. */
inline std::uint64_t device_memory_used(std::int32_t device = -1) {
  return detail::reading(plinth_device_memory_used, device);
}
/*! The energy in millijoules since the driver was loaded. */
inline std::uint64_t energy_used(std::int32_t device = -1) { return detail::reading(plinth_energy_used, device); }
/*! PLINTH_THROTTLE_ bits. */
inline std::uint64_t throttle_reasons(std::int32_t device = -1) {
  return detail::reading(plinth_throttle_reasons, device);
}
inline std::string throttle_reasons_text(std::uint64_t reasons) {
  return detail::text([&](char **out) { return plinth_throttle_reasons_text(reasons, out); });
}
/*! All readings in one call; `valid` states which are available. */
inline Telemetry read_telemetry(std::int32_t device = -1) {
  return detail::sized_output<Telemetry>([&](Telemetry *out) { return plinth_read_telemetry(device, out); });
}

inline std::string list_gpu_processes(std::int32_t device = -1) {
  return detail::text([&](char **out) { return plinth_list_gpu_processes(device, out); });
}
/*! The processes with a compute context on a device, as structs. */
inline std::vector<plinth_gpu_process_t> gpu_processes(std::int32_t device = -1) {
  std::vector<plinth_gpu_process_t> found;
  const auto add = [&](const plinth_gpu_process_t *process) { found.push_back(*process); };
  using Visit = detail::Visit<decltype(add)>;
  Visit visit(add);
  const auto show = [](const plinth_gpu_process_t *process, void *context) { Visit::of(context).show(process); };
  visit.finish(plinth_gpu_processes_each(device, show, &visit));
  return found;
}

/*! Reads a device's telemetry at a fixed rate in its own thread, for the lifetime of the object. Movable, not
 *  copyable. */
class TelemetrySampler {
 public:
  explicit TelemetrySampler(std::chrono::milliseconds interval, std::size_t capacity = 1024, std::int32_t device = -1)
      : sampler_(detail::output<plinth_telemetry_sampler_t>([&](plinth_telemetry_sampler_t *out) {
          return plinth_telemetry_sampler_create(device, number_of(interval), capacity, out);
        })) {}
  ~TelemetrySampler() { static_cast<void>(plinth_telemetry_sampler_destroy(sampler_)); }
  TelemetrySampler(TelemetrySampler &&other) noexcept : sampler_(std::exchange(other.sampler_, nullptr)) {}
  TelemetrySampler &operator=(TelemetrySampler &&other) noexcept {
    std::swap(sampler_, other.sampler_);
    return *this;
  }
  TelemetrySampler(const TelemetrySampler &) = delete;
  TelemetrySampler &operator=(const TelemetrySampler &) = delete;

  plinth_telemetry_sampler_t get() const noexcept { return sampler_; }

  /*! The number of samples that were taken, and of samples that were dropped since the last call. */
  struct Taken {
    std::size_t count;
    std::uint64_t lost;
  };
  /*! Removes and returns the oldest samples, up to `capacity`. */
  Taken take(Telemetry *readings, std::size_t capacity) {
    Taken taken{};
    if (readings != nullptr && capacity > 0) readings->struct_size = sizeof *readings;
    detail::acquire([&] {
      return plinth_telemetry_sampler_take(sampler_, readings, capacity, &taken.count, &taken.lost);
    });
    return taken;
  }
  /*! Removes and returns all samples, the oldest first; samples that arrive during the call may be left. Throws if
   *  there are no samples but an error of the sampler. */
  std::vector<Telemetry> take() {
    constexpr std::size_t at_once = 64;
    std::vector<Telemetry> readings;
    std::size_t used = 0, count = 0;
    do {
      readings.resize(used + at_once, PLINTH_TELEMETRY_INIT);
      count = 0;
      const auto call = [&] {
        return plinth_telemetry_sampler_take(sampler_, readings.data() + used, at_once, &count, nullptr);
      };
      if (used == 0) {
        detail::acquire(call);
      } else {
        static_cast<void>(call());
      }
      used += count;
    } while (count == at_once);
    readings.resize(used);
    return readings;
  }

 private:
  static std::uint32_t number_of(std::chrono::milliseconds interval) {
    if (interval.count() < 0 || interval.count() > std::numeric_limits<std::int32_t>::max()) {
      throw std::invalid_argument("plinth::TelemetrySampler: the interval is out of range");
    }
    return static_cast<std::uint32_t>(interval.count());
  }

  plinth_telemetry_sampler_t sampler_;
};

}  // namespace plinth

#endif

#endif /* PLINTH_PROFILE_HPP */
