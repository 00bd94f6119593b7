// The clock, the cost of reading it, and percentiles.
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

// The percentiles of some times. The constructor sorts its argument.
struct Percentiles {
  double p50, p99, p999, most;
  explicit Percentiles(std::vector<double> &times) {
    std::sort(times.begin(), times.end());
    auto at = [&](double part) { return times[static_cast<size_t>(static_cast<double>(times.size() - 1) * part)]; };
    p50 = at(0.5), p99 = at(0.99), p999 = at(0.999), most = times.back();
  }
};

// Measures two consecutive readings of the clock. Every single time that is reported includes this cost.
inline Percentiles clock_cost() {
  std::vector<double> times(20000);
  for (double &time : times) {
    auto start = Clock::now();
    time = nanoseconds(start, Clock::now());
  }
  return Percentiles(times);
}

}  // namespace replay
