// The stream sanitizer detects a race between two streams, even in a run in which the result happens to be correct.
//
//   g++ -std=c++17 -g 07-sanitizer.cpp -lplinth && PLINTH_DEVICE=host ./a.out
//
// To check a program without changing it, run it with PLINTH_SANITIZER=warn PLINTH_SANITIZER_LOG=stderr.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.hpp>

#include <cstdio>
#include <cstdlib>

namespace sanitizer = plinth::sanitizer;

namespace {

constexpr std::size_t kCount = 1024;

// Stands in for a kernel of the program. The program declares the kernel's accesses to the sanitizer before the launch.
void launch_sum(const DLTensor &of, float *result, plinth::StreamView stream) {
  sanitizer::operation(
      "sum", {sanitizer::reads(of.data, kCount * sizeof(float)), sanitizer::writes(result, sizeof(float))}, stream);
  // sum<<<blocks, threads, 0, stream.get()>>>(...)
}

// The example of PyTorch's documentation: a side stream reads memory that the current stream may still write.
void work(bool with_wait) {
  plinth::Shape<1> shape{kCount};
  const plinth::DeviceBuffer numbers(kCount * sizeof(float)), result(sizeof(float));
  DLTensor tensor = plinth::tensor_view(numbers.as<float>(), shape);
  const plinth::Stream side;

  plinth::normal(tensor);
  if (with_wait) side.wait(plinth::current_stream());
  launch_sum(tensor, result.as<float>(), side);
  plinth::synchronize();
}

void run() {
  // 1. In mode warn, each report is stored and passed to the callback: both accesses, their stacks, and the missing order.
  {
    const sanitizer::Guard guard(sanitizer::Mode::warn);
    sanitizer::set_callback([](const sanitizer::Report *report) {
      std::printf("found: \"%s\" after \"%s\", %llu bytes\n", report->access->name, report->previous->name,
                  static_cast<unsigned long long>(report->bytes));
    });
    work(false);
    const std::string text = sanitizer::text();
    std::printf("%s\n", text.substr(0, text.find('\n')).c_str());
  }
  sanitizer::set_callback(nullptr);

  // 2. In mode error, the call that would cause the race fails.
  sanitizer::clear();
  try {
    const sanitizer::Guard guard(sanitizer::Mode::error);
    work(false);
  } catch (const plinth::Error &error) {
    std::printf("%s instead of a wrong sum\n", error.name());
  }

  // 3. With the wait there is no race.
  sanitizer::clear();
  const sanitizer::Guard guard(sanitizer::Mode::error);
  work(true);
  std::printf("with the wait: %zu reports\n", sanitizer::count().reports);
}

}  // namespace

int main() try {
  run();
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
