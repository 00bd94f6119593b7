// The clock, what it costs itself, and percentiles.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace replay {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// Sorts what it is given.
struct Percentiles {
  double p50, p99, p999, most;
  explicit Percentiles(std::vector<double> &times) {
    std::sort(times.begin(), times.end());
    auto at = [&](double part) { return times[static_cast<size_t>(static_cast<double>(times.size() - 1) * part)]; };
    p50 = at(0.5), p99 = at(0.99), p999 = at(0.999), most = times.back();
  }
};

// What two readings of the clock with nothing between them show: it is in every single time that is reported.
inline Percentiles clock_cost() {
  std::vector<double> times(20000);
  for (double &time : times) {
    auto start = Clock::now();
    time = nanoseconds(start, Clock::now());
  }
  return Percentiles(times);
}

}  // namespace replay
