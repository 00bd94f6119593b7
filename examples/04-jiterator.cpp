// Compiles an elementwise function from source text at run time, and applies it to tensors.
//
//   g++ -std=c++17 04-jiterator.cpp -lplinth && PLINTH_DEVICE=host ./a.out
//
// On a GPU NVRTC compiles the text; on the host device it is the machine's C++ compiler, g++ or clang++.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.hpp>

#include <chrono>
#include <cstdio>
#include <vector>

namespace {

// Numbers on the device, and the tensor that describes them.
template <class T, std::size_t Rank>
struct Tensor {
  Tensor(plinth::Shape<Rank> extents, const std::vector<T> &numbers)
      : memory(numbers.size() * sizeof(T)), shape(extents), view(plinth::tensor_view(memory.as<T>(), shape)) {
    plinth::copy(memory.get(), numbers.data(), memory.size());
  }
  Tensor(const Tensor &) = delete;

  std::vector<T> read() const {
    std::vector<T> numbers(plinth::element_count(view));
    plinth::copy(numbers.data(), memory.get(), memory.size());
    return numbers;
  }

  plinth::DeviceBuffer memory;
  plinth::Shape<Rank> shape;
  DLTensor view;
};

void print(const char *what, const std::vector<float> &numbers) {
  std::printf("%-28s", what);
  for (const float number : numbers) std::printf(" %6.2f", static_cast<double>(number));
  std::printf("\n");
}

void run() {
  // 1. The function is any template of one type. Parameters with a default here are scalars, which calls pass by name.
  const plinth::JitFunction leaky(
      "template <typename T> T leaky(T x, T slope) { return x > T(0) ? x : slope * x; }",
      {plinth::scalar("slope", 0.01)});
  Tensor<float, 1> x({4}, {-2, -1, 1, 2}), out({4}, {0, 0, 0, 0});
  leaky({&x.view}, {&out.view});
  print("leaky(x), slope 0.01:", out.read());
  leaky({&x.view}, {&out.view}, {plinth::scalar("slope", 0.5)});
  print("leaky(x), slope 0.5:", out.read());

  // 2. Inputs may differ in shape and type: a column of integers and a row of floats broadcast to a matrix of floats.
  // Several outputs are written in one pass over the inputs.
  const plinth::JitFunction both = plinth::JitFunction::multi_output(
      "template <typename T> void both(T a, T b, T &product, T &wave) { product = a * b; wave = sin(a * b); }", 2);
  Tensor<std::int32_t, 2> column({2, 1}, {1, 10});
  Tensor<float, 2> row({1, 3}, {0.5f, 1.5f, 2.5f});
  Tensor<float, 2> product({2, 3}, std::vector<float>(6)), wave({2, 3}, std::vector<float>(6));
  const auto result = both.result({&column.view, &row.view});
  std::printf("a 2x1 int tensor and a 1x3 float tensor give %d dimensions, %lld x %lld\n", static_cast<int>(result.ndim),
              static_cast<long long>(result.shape[0]), static_cast<long long>(result.shape[1]));
  both({&column.view, &row.view}, {&product.view, &wave.view});
  print("column * row:", product.read());
  print("sin(column * row):", wave.read());

  // 3. The first call compiles, unless the disk cache has the kernel; later ones only launch, here in another stream.
  const plinth::Stream stream;
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < 1000; call++) leaky({&x.view}, {&out.view}, {}, stream);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  stream.synchronize();
  std::printf("a call takes %.1f us of CPU time\n", took.count() / 1000);

  // 4. The error contains the compiler's message.
  try {
    plinth::JitFunction("template <typename T> T wrong(T x) { return y; }")({&x.view}, {&out.view});
  } catch (const plinth::Error &error) {
    std::printf("%s, as expected\n", error.name());
  }
}

}  // namespace

int main() try {
  run();
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  // On a machine without a compiler the example is skipped.
  return error.status() == PLINTH_ERROR_COMPILER_UNAVAILABLE ? 0 : 1;
}
