// plinth_jit.hpp and plinth_tensor.hpp: functions from source, kernels, and the conversion of their arguments.
//
// env: PLINTH_USE_KERNEL_CACHE=0
// timeout: 240
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "wrapping.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <stdexcept>

static_assert(owns<plinth::JitFunction>() && owns<plinth::Kernel>() && owns<plinth::KernelModule>(), "handles");
static_assert(plinth::data_type<float>().code == 2 && plinth::data_type<float>().bits == 32, "a float");
static_assert(plinth::data_type<const std::int64_t>().code == 0 && plinth::data_type<std::uint8_t>().code == 1, "numbers");
static_assert(plinth::data_type<bool>().code == 6 && plinth::data_type<std::complex<double>>().bits == 128, "others");

/* Converts to a DLTensor that is gone when the conversion ends. */
struct converts_by_value {
  operator DLTensor() const;
};
static_assert(plinth::detail::is_tensor<DLTensor> && plinth::detail::is_tensor<plinth::Tensor<float>>, "they stay");
static_assert(!plinth::detail::is_tensor<converts_by_value>, "a launch would read a temporary");

using Numbers = std::vector<float>;

static const char *const kScale =
    "template <typename T>\n"
    "__global__ void scale(T *data, T by, int count) {\n"
    "  const int at = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (at < count) data[at] *= by;\n"
    "}\n";

// A module with a kernel for all devices: on the host device every module has plinth_sleep.
static const std::string kSleepModule =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry plinth_sleep(.param .u64 cycles)\n{\n  ret;\n}\n";

TEST(tensors_are_described) {
  float numbers[12] = {0};
  plinth::Shape<2> shape{3, 4};
  DLTensor tensor = plinth::tensor_view(numbers, shape, 1);
  CHECK(tensor.data == numbers && tensor.ndim == 2 && tensor.shape == shape.data() && tensor.strides == nullptr);
  CHECK(static_cast<int>(tensor.device.device_type) == 2 && tensor.device.device_id == 1);
  CHECK(plinth::element_count(tensor) == 12 && plinth::is_contiguous(tensor));
  tensor.byte_offset = 4;
  CHECK(plinth::first_element(tensor) == numbers + 1);
  std::int64_t strides[] = {4, 1};
  tensor.strides = strides;
  CHECK(plinth::is_contiguous(tensor));
  strides[0] = 5;
  CHECK(!plinth::is_contiguous(tensor));
  shape[0] = 1;
  CHECK(plinth::is_contiguous(tensor));
  const plinth::DeviceBuffer buffer(64);
  plinth::Shape<0> none{};
  CHECK_EQ(plinth::element_count(plinth::tensor_view(buffer.as<int>(), none)), 1);
  CHECK_EQ(plinth::tensor_view(buffer.as<int>(), none).device.device_id, 0);
}

TEST(scalars_have_defaults_and_names) {
  const plinth::JitFunction blend("template <typename T> T blend(T x, T y, T alpha, T shift) { return x + alpha * y + shift; }",
                                  {plinth::scalar("alpha", 2), plinth::scalar("shift", 0.5)});
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  Row<float> x({1, 2, 3}), y({10, 20, 30}), out({0, 0, 0});
  blend({&x.tensor, &y.tensor}, {&out.tensor});
  CHECK(out.read() == Numbers({21.5f, 42.5f, 63.5f}));
  blend({&x.tensor, &y.tensor}, {&out.tensor}, {plinth::scalar("shift", true), plinth::scalar("alpha", 1.0f)});
  CHECK(out.read() == Numbers({12, 23, 34}));
  blend({&x.tensor, &y.tensor}, {&out.tensor}, {plinth::scalar("alpha", -1)}, plinth::default_stream());
  CHECK(out.read() == Numbers({-8.5f, -17.5f, -26.5f}));
  THROWS(blend({&x.tensor, &y.tensor}, {&out.tensor}, {plinth::scalar("beta", 1)}), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(plinth::scalar("alpha", static_cast<std::uint64_t>(INT64_MAX)).integer, INT64_MAX);
  THROWS_TYPE(plinth::scalar("alpha", static_cast<std::uint64_t>(INT64_MAX) + 1), std::invalid_argument);
  THROWS(blend({&x.tensor}, {&out.tensor}), PLINTH_ERROR_INVALID_VALUE);
  const std::vector<const DLTensor *> inputs{&x.tensor, &y.tensor};
  const std::vector<DLTensor *> outputs{&out.tensor};
  blend.call(inputs, outputs, std::vector<plinth_jit_scalar_t>{plinth::scalar("shift", 0)}, stream);
  CHECK(out.read() == Numbers({21, 42, 63}));
}

TEST(functions_with_several_outputs) {
  plinth::JitFunction both = plinth::JitFunction::multi_output(
      "template <typename T> void both(T x, T y, T &sum, T &product) { sum = x + y; product = x * y; }", 2);
  plinth::JitFunction moved(std::move(both));
  CHECK(both.get() == nullptr && moved.get() != nullptr);
  move_to_itself(moved);
  Row<float> x({1, 2, 3}), sum({0, 0, 0}), product({0, 0, 0});
  Row<std::int32_t> y({4, 5, 6});
  const plinth::JitFunction::Result result = moved.result({&x.tensor, &y.tensor});
  CHECK(result.ndim == 1 && result.shape[0] == 3 && result.dtype.code == 2 && result.dtype.bits == 32);
  moved({&x.tensor, &y.tensor}, {&sum.tensor, &product.tensor});
  CHECK(sum.read() == Numbers({5, 7, 9}) && product.read() == Numbers({4, 10, 18}));
  THROWS(both.result({&x.tensor, &y.tensor}), PLINTH_ERROR_NULL_POINTER);
}

TEST(complex_scalars_have_two_parts) {
  using Complex = std::complex<float>;
  const plinth::JitFunction turn("template <typename T> T turn(T x, T by) { return x * by; }",
                                 {plinth::scalar("by", std::complex<double>(0, 1))});
  Row<Complex> x({Complex(1, 2)}), out({Complex(0, 0)});
  turn({&x.tensor}, {&out.tensor});
  CHECK(out.read()[0] == Complex(-2, 1));
}

TEST(invalid_code_throws) {
  THROWS(plinth::JitFunction("int x;"), PLINTH_ERROR_INVALID_VALUE);
  const plinth::JitFunction wrong("template <typename T> T wrong(T x) { return undeclared_thing; }");
  Row<float> x({1});
  THROWS(wrong({&x.tensor}, {&x.tensor}), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK(caught_text().find("undeclared_thing") != std::string::npos);
}

// The conversion of an argument of each type.
TEST(arguments_have_the_kind_of_their_type) {
  struct Pair {
    std::int32_t first;
    char second;
  };
  enum class Color : std::int32_t { red };
  const auto kind_of = [](const auto &value) {
    const plinth_kernel_argument_t made = plinth::detail::kernel_argument(value);
    CHECK(made.value == &value);
    CHECK_EQ(made.bytes, made.kind == PLINTH_ARGUMENT_BYTES ? sizeof value : 0);
    return made.kind;
  };
  const Pair pair{1, 'x'};
  const int *const pointer = nullptr;
  const DLTensor tensor{};
  CHECK_EQ(kind_of(tensor), PLINTH_ARGUMENT_TENSOR);
  CHECK_EQ(kind_of(pointer), PLINTH_ARGUMENT_POINTER);
  CHECK_EQ(kind_of(nullptr), PLINTH_ARGUMENT_POINTER);
  CHECK_EQ(kind_of(true), PLINTH_ARGUMENT_BOOL);
  CHECK_EQ(kind_of(1), PLINTH_ARGUMENT_INT32);
  CHECK_EQ(kind_of(1u), PLINTH_ARGUMENT_INT32);
  CHECK_EQ(kind_of(Color::red), PLINTH_ARGUMENT_INT32);
  CHECK_EQ(kind_of(1ll), PLINTH_ARGUMENT_INT64);
  CHECK_EQ(kind_of(std::size_t(1)), PLINTH_ARGUMENT_INT64);
  CHECK_EQ(kind_of(1.0f), PLINTH_ARGUMENT_FLOAT32);
  CHECK_EQ(kind_of(1.0), PLINTH_ARGUMENT_FLOAT64);
  CHECK_EQ(kind_of('x'), PLINTH_ARGUMENT_BYTES);
  CHECK_EQ(kind_of(pair), PLINTH_ARGUMENT_BYTES);
  const auto access_of = [&](const auto &value) {
    const plinth_kernel_argument_t made = plinth::detail::kernel_argument(value);
    CHECK(made.value == &tensor && made.kind == PLINTH_ARGUMENT_TENSOR && made.bytes == 0);
    return made.access;
  };
  CHECK_EQ(access_of(tensor), 0);
  CHECK_EQ(access_of(plinth::reads(tensor)), PLINTH_SANITIZER_READ);
  CHECK_EQ(access_of(plinth::writes(tensor)), PLINTH_SANITIZER_WRITE);
  CHECK_EQ(access_of(plinth::reads_and_writes(tensor)), PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE);
}

TEST(kernels_of_a_module_are_launched) {
  plinth::Kernel kernel = plinth::KernelModule(kSleepModule).kernel("plinth_sleep");
  const plinth_kernel_t handle = kernel.get();
  plinth::Kernel moved(std::move(kernel));
  CHECK(kernel.get() == nullptr && moved.get() == handle);
  move_to_itself(moved);
  CHECK(moved.get() == handle);
  CHECK(moved.attributes().max_threads_per_block >= 256);
  CHECK(moved.occupancy(256) >= 1);
  THROWS(moved.occupancy(0), PLINTH_ERROR_INVALID_VALUE);
  moved.set_shared_memory_config(1024);
  const std::int64_t cycles = 10;
  moved({{1}, {1}}, cycles);
  plinth::current_stream().synchronize();
  THROWS(moved({{1}, {4096}}, cycles), PLINTH_ERROR_INVALID_VALUE);
  THROWS(moved(plinth::Launch({1}, {1}).shared_bytes(1 << 24), cycles), PLINTH_ERROR_INVALID_VALUE);
  THROWS(moved(plinth::Launch({3}, {1}).cluster({2}), cycles), PLINTH_ERROR_INVALID_VALUE);
  if (on_host_device()) {
    // A GPU's driver reports parameters from CUDA 12.4 on; the host device always does.
    THROWS(moved({1, 1}, 10), PLINTH_ERROR_INVALID_VALUE);
    THROWS(moved({1, 1}), PLINTH_ERROR_INVALID_VALUE);
    THROWS(moved(plinth::Launch({1}, {1}).cooperative(), cycles), PLINTH_ERROR_NOT_SUPPORTED);
  }
  THROWS(kernel({1, 1}, cycles), PLINTH_ERROR_NULL_POINTER);
}

// A launch becomes a node of the graph that its stream captures, and of no other.
TEST(launches_use_the_given_or_the_current_stream) {
  const plinth::Kernel kernel = plinth::KernelModule(kSleepModule).kernel("plinth_sleep");
  const std::int64_t cycles = 10;
  const plinth::Stream captured, other;
  plinth::Graph graph(true);
  plinth::capture(graph, [&] { kernel({1, 1}, cycles); }, {0, 0}, captured);
  CHECK_EQ(plinth::nodes(graph).size(), 1);
  CHECK(plinth::node_type(graph, plinth::nodes(graph)[0]) == plinth::GraphNodeType::kernel);
  plinth::Graph second(true);
  plinth::capture(
      second,
      [&] {
        const plinth::StreamGuard guard(other);
        kernel({1, 1}, cycles);
        kernel(plinth::Launch({1}, {1}).on(captured), cycles);
        kernel(plinth::Launch({1}, {1}).on(captured), cycles);
      },
      {0, 0}, captured, plinth::CaptureMode::relaxed);
  CHECK_EQ(plinth::nodes(second).size(), 2);
  const plinth_graph_kernel_t launch = plinth::node_kernel(second, plinth::nodes(second)[0]);
  CHECK(launch.grid[0] == 1 && launch.block[0] == 1 && launch.shared_bytes == 0);
  second.instantiate();
  second.replay();
  plinth::synchronize();
}

TEST(invalid_modules_throw) {
  const plinth::KernelModule module(kSleepModule.data(), kSleepModule.size(), 0);
  THROWS(module.kernel("nothing"), PLINTH_ERROR_INVALID_VALUE);
  THROWS(plinth::KernelModule(std::string()), PLINTH_ERROR_INVALID_VALUE);
  THROWS(plinth::KernelModule(kSleepModule, 1000), PLINTH_ERROR_INVALID_DEVICE);
}

TEST(sources_are_compiled_without_a_device) {
  plinth::CompileOptions options;
  options.compute_capability = "compute_80";
  options.options = {"-DVALUE=7"};
  plinth::CompiledImage made;
  try {
    made = plinth::nvrtc_compile(std::string("static_assert(VALUE == 7, \"\");\n") + kScale, "scale<float>", options);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_COMPILER_UNAVAILABLE);
    SKIP("there is no NVRTC here");
  }
  const std::string text(made.image.begin(), made.image.end());
  CHECK(text.find(".target sm_80") != std::string::npos && text.find(made.lowered_name) != std::string::npos);
  options.include_dirs = {"/nowhere"};
  options.options.clear();
  THROWS(plinth::nvrtc_compile("#include \"mine.h\"", "f", options), PLINTH_ERROR_COMPILATION_FAILED);
  CHECK(caught_text().find("mine.h") != std::string::npos);
}

TEST(kernels_are_compiled_and_run) {
  const plinth::Kernel scale = plinth::compile_kernel(kScale, "scale<float>");
  Numbers numbers(1000), expected(1000);
  for (std::size_t index = 0; index < numbers.size(); index++) {
    numbers[index] = static_cast<float>(index);
    expected[index] = 3 * numbers[index];
  }
  Row<float> row(numbers);
  scale({{8}, {128}}, row.tensor, 3.0f, 1000);
  CHECK(row.read() == expected);
  scale({{8}, {128}}, row.memory.as<float>(), 1.0f, 1000);
  CHECK(row.read() == expected);
  plinth::Tensor<float> tensor({4});
  plinth::uniform(tensor, 1, 2);
  scale({{1}, {32}}, tensor, 0.0f, 4);
  float values[4] = {1, 1, 1, 1};
  plinth::synchronize();
  plinth::copy(values, tensor.data(), sizeof values);
  for (const float value : values) CHECK(value == 0);
}

// A kernel with inline PTX, which the host device cannot compile.
TEST(functions_run_in_place_of_kernels) {
  struct Pair {
    int first, second;
  };
  const char *source = R"(
    struct Pair { int first, second; };
    extern "C" __global__ void multiply(int *to, Pair by) {
      asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(*to) : "r"(*to), "r"(by.first), "r"(by.second));
    })";
  const auto multiply = [](const plinth_host_launch_t &launch, int *to, Pair by) {
    if (launch.grid[0] != 1) throw std::runtime_error("one block, please");
    *to = *to * by.first + by.second;
  };
  plinth::register_host_kernel<int *, const Pair>("multiply", multiply);
  const plinth::Kernel kernel = plinth::compile_kernel(source, "multiply");
  plinth::unregister_host_kernel("multiply");
  plinth::Tensor<int> number({1});
  int value = 5;
  plinth::copy(number.data(), &value, sizeof value);
  kernel({{1}, {1}}, number, Pair{7, 1});
  plinth::synchronize();
  plinth::copy(&value, number.data(), sizeof value);
  CHECK_EQ(value, 36);
  THROWS((plinth::register_host_kernel<int *, Pair>("plinth_multiply", multiply)), PLINTH_ERROR_INVALID_VALUE);
}
