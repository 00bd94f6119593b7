// Annotates ranges for a profiler, and samples the device's telemetry meanwhile.
//
//   g++ -std=c++17 08-profile.cpp -lplinth && PLINTH_DEVICE=host ./a.out
//
// `nsys profile ./a.out` shows the ranges above their work. Without a tool they cost nanoseconds.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::size_t kBytes = 64u << 20;

void step(const plinth::nvtx::Domain &domain, int number, const plinth::DeviceBuffer &memory) {
  // On the CPU: the range ends with the scope, also if an exception is thrown.
  const plinth::nvtx::ScopedRange range(domain, plinth::nvtx::Event("step").color(0xFF3366CC).payload(number));
  {
    // On the device: from the time at which the stream reaches the range until its work completes.
    const plinth::nvtx::DeviceRange work("fill");
    plinth::memset(memory.get(), static_cast<std::uint8_t>(number), kBytes);
  }
  plinth::current_stream().synchronize();
}

// Prints a reading, or the error if this machine does not provide it.
template <class Reading>
void print_reading(const char *what, const char *unit, Reading reading) {
  try {
    std::printf("%-14s %llu %s\n", what, static_cast<unsigned long long>(reading()), unit);
  } catch (const plinth::Error &error) {
    std::printf("%-14s (%s)\n", what, error.name());
  }
}

void run() {
  std::printf("%s, %s\n", plinth::device_name().c_str(),
              plinth::nvtx::is_active() ? "with an NVTX tool" : "without an NVTX tool");
  print_reading("utilization", "%", [] { return plinth::utilization(); });
  print_reading("temperature", "C", [] { return plinth::temperature(); });
  print_reading("power", "mW", [] { return plinth::power_draw(); });
  print_reading("clock", "MHz", [] { return plinth::clock_rate(); });
  print_reading("memory in use", "bytes", [] { return plinth::device_memory_used(); });

  // A sampler reads all of these in its own thread, while the program works.
  plinth::TelemetrySampler sampler(std::chrono::milliseconds(5));
  const plinth::DeviceBuffer memory(kBytes);
  {
    const plinth::nvtx::Domain domain("example");
    const plinth::nvtx::ScopedRange epoch("epoch");
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    int steps = 0;
    while (std::chrono::steady_clock::now() < end) step(domain, steps++, memory);
    std::printf("%d steps\n", steps);
  }
  const std::vector<plinth::Telemetry> readings = sampler.take();
  std::uint64_t peak = 0;
  for (const plinth::Telemetry &reading : readings) peak = std::max(peak, reading.memory_used);
  std::printf("%zu readings; at most %.0f MiB in use by all processes\n", readings.size(),
              static_cast<double>(peak) / 1048576.0);
}

}  // namespace

int main() try {
  run();
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
