// plinth_libraries.hpp: handles of CUDA's libraries, cuFFT plans, green contexts.
//
// library: fake_cublas
// library: fake_cublas_for_gpus
// library: fake_cufft
// library: fake_cufft_for_gpus
// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: without_the_libraries_there_is_an_error; expects what only a fresh process has

#include "libraries.h"

#include "wrapping.h"

#include <complex>
#include <stdexcept>
#include <thread>

static_assert(owns<plinth::CufftPlan>() && owns<plinth::GreenContext>(), "handles");
static_assert(is_block<plinth::CufftPlanGuard>() && is_block<plinth::GreenContextGuard>(), "blocks");

using Complex = std::complex<float>;

// Uses the fakes of CUDA's libraries on the host device, and the real ones on a GPU. Skips the test if there are none.
static void need_libraries() {
  if (on_host_device()) {
    name_library("PLINTH_CUBLAS_LIBRARY", "fake_cublas");
    name_library("PLINTH_CUSOLVER_LIBRARY", "fake_cublas");
    name_library("PLINTH_CUFFT_LIBRARY", "fake_cufft");
    return;
  }
  try {
    static_cast<void>(plinth::current_blas_handle());
    static_cast<void>(plinth::current_solver_handle());
    const plinth::CufftPlan plan(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {8}));
  } catch (const plinth::Error &error) {
    if (error.status() != PLINTH_ERROR_LIBRARY_UNAVAILABLE) throw;
    SKIP("needs CUDA's libraries");
  }
  plinth::cufft_plan_cache::clear();
}

TEST(handles_have_the_callers_types) {
  need_libraries();
  struct Context;
  const plinth::Stream stream;
  const plinth::StreamGuard guard(stream);
  Context *const handle = plinth::current_blas_handle<Context *>();
  CHECK(handle != nullptr && plinth::current_blas_handle() == static_cast<void *>(handle));
  CHECK(plinth::current_blaslt_handle<Context *>() == handle);
  Context *const solver = plinth::current_solver_handle<Context *>();
  CHECK(solver != nullptr && solver != handle);
  const plinth::BlasLtWorkspace workspace = plinth::current_blaslt_workspace();
  CHECK(workspace.memory != nullptr && workspace.bytes >= MIB);
  void *handle_of_other_thread = handle;
  std::thread([&] { handle_of_other_thread = plinth::current_blas_handle(); }).join();
  CHECK(handle_of_other_thread != handle);
  CHECK(plinth::memory_allocated() > 0);
  plinth::synchronize();
  plinth::clear_blas_workspaces();
  CHECK_EQ(plinth::memory_allocated(), 0);
}

TEST(precision_settings_are_enums) {
  CHECK(plinth::float32_matmul_precision() == plinth::MatmulPrecision::highest && !plinth::matmul_allow_tf32());
  plinth::set_float32_matmul_precision(plinth::MatmulPrecision::medium);
  CHECK(plinth::matmul_allow_tf32());
  plinth::set_matmul_allow_tf32(false);
  CHECK(plinth::float32_matmul_precision() == plinth::MatmulPrecision::highest);
  plinth::set_matmul_allow_fp16_reduced_precision_reduction(false);
  CHECK(!plinth::matmul_allow_fp16_reduced_precision_reduction() && plinth::matmul_allow_bf16_reduced_precision_reduction());
  plinth::set_matmul_allow_bf16_reduced_precision_reduction(true);
  plinth::set_matmul_allow_fp16_reduced_precision_reduction(true);
  plinth::set_preferred_blas_library(plinth::BlasLibrary::cublaslt);
  CHECK(plinth::preferred_blas_library() == plinth::BlasLibrary::cublaslt);
  plinth::set_preferred_blas_library(plinth::BlasLibrary::library_default);
  CHECK(plinth::preferred_blas_library() == plinth::BlasLibrary::cublas);
  plinth::set_preferred_linalg_library(plinth::LinalgLibrary::cusolver);
  CHECK(plinth::preferred_linalg_library() == plinth::LinalgLibrary::cusolver);
  plinth::set_preferred_linalg_library(plinth::LinalgLibrary::library_default);
}

TEST(without_the_libraries_there_is_an_error) {
  need_host_device();
  THROWS(plinth::current_blas_handle(), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  THROWS(plinth::current_solver_handle(), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
  THROWS(plinth::CufftPlan(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {8})), PLINTH_ERROR_LIBRARY_UNAVAILABLE);
}

TEST(params_have_defaults) {
  const plinth::CufftParams params = plinth::cufft_params<double>(plinth::CufftTransform::r2c, 3, {4, 6});
  CHECK(params.struct_size == sizeof params && params.rank == 2 && params.transform == PLINTH_CUFFT_R2C);
  CHECK(params.number.code == 2 && params.number.bits == 64);
  CHECK(params.sizes[0] == 3 && params.sizes[1] == 4 && params.sizes[2] == 6 && params.sizes[3] == 0);
  CHECK(params.input_strides[0] == 0 && params.output_strides[3] == 0);
  THROWS_TYPE(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {}), std::invalid_argument);
  THROWS_TYPE(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {1, 2, 3, 4}), std::invalid_argument);
}

TEST(plans_transform_forward_and_inverse) {
  need_libraries();
  plinth::CufftPlan plan(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {4}));
  const std::vector<Complex> numbers{1, 2, 3, 4};
  Row<Complex> input(numbers), output(std::vector<Complex>(4)), back(std::vector<Complex>(4));
  plan.execute(input.memory.get(), output.memory.get());
  const std::vector<Complex> expected{Complex(10, 0), Complex(-2, 2), Complex(-2, 0), Complex(-2, -2)};
  const std::vector<Complex> found = output.read();
  plinth::CufftPlan moved(std::move(plan));
  CHECK(plan.get() == nullptr);
  move_to_itself(moved);
  moved.execute(output.memory.get(), back.memory.get(), plinth::CufftDirection::inverse);
  const std::vector<Complex> again = back.read();
  for (std::size_t index = 0; index < 4; index++) {
    CHECK(std::abs(found[index] - expected[index]) < 1e-5f);
    CHECK(std::abs(again[index] - 4.0f * numbers[index]) < 1e-5f);
  }
}

TEST(plans_can_be_locked) {
  need_libraries();
  const plinth::CufftPlan plan(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {4}));
  Row<Complex> row(std::vector<Complex>(4));
  try {
    const plinth::CufftPlanGuard guard(plan);
    const std::int32_t native = guard.native();
    CHECK(native != 0 || !on_host_device());
    THROWS(plinth::CufftPlanGuard(plan), PLINTH_ERROR_INVALID_VALUE);
    THROWS(plan.execute(row.memory.get(), row.memory.get()), PLINTH_ERROR_INVALID_VALUE);
    throw 1;
  } catch (int) {
  }
  plan.execute(row.memory.get(), row.memory.get());
  plinth::synchronize();
}

TEST(the_cache_counts_plans) {
  need_libraries();
  CHECK_EQ(plinth::cufft_plan_cache::max_size(), 4096);
  for (std::int64_t size = 2; size < 6; size++) {
    const plinth::CufftPlan plan(plinth::cufft_params(plinth::CufftTransform::c2c, 1, {size}));
  }
  CHECK_EQ(plinth::cufft_plan_cache::size(), 4);
  plinth::cufft_plan_cache::set_max_size(3);
  CHECK(plinth::cufft_plan_cache::size() == 3 && plinth::cufft_plan_cache::max_size(0) == 3);
  plinth::cufft_plan_cache::clear();
  CHECK_EQ(plinth::cufft_plan_cache::size(), 0);
  THROWS(plinth::cufft_plan_cache::set_max_size(-1), PLINTH_ERROR_INVALID_VALUE);
}

// Creates a green context. Skips the test if the driver does not support them.
static plinth::GreenContext make_green_context(std::int32_t sm_count) {
  try {
    return plinth::GreenContext(sm_count, 0);
  } catch (const plinth::Error &error) {
    CHECK_EQ(error.status(), PLINTH_ERROR_NOT_SUPPORTED);
    SKIP("the driver has no green contexts");
    throw;
  }
}

TEST(green_contexts_have_guards) {
  plinth::GreenContext green_context = make_green_context(8);
  CHECK(green_context.num_sms() >= 8 && green_context.device() == 0);
  CHECK(green_context.native() != nullptr && green_context.as_context() != nullptr);
  plinth::GreenContext moved(std::move(green_context));
  CHECK(green_context.get() == nullptr);
  move_to_itself(moved);
  const plinth::StreamView before = plinth::current_stream();
  try {
    const plinth::GreenContextGuard guard(moved);
    CHECK(plinth::current_stream() != before);
    THROWS(moved.destroy(), PLINTH_ERROR_INVALID_VALUE);
    CHECK(moved.get() != nullptr);
    Row<float> row({1, 2});
    plinth::memset(row.memory.get(), 0, 8);
    CHECK(row.read() == std::vector<float>({0, 0}));
    throw 1;
  } catch (int) {
  }
  CHECK(plinth::current_stream() == before);
  CHECK(moved.stream() != moved.stream());
  moved.destroy();
  moved.destroy();
  THROWS(moved.num_sms(), PLINTH_ERROR_NULL_POINTER);
  THROWS(plinth::GreenContext(1 << 20), PLINTH_ERROR_INVALID_VALUE);
  plinth::GreenContext::Split split = plinth::GreenContext::split(16, 2, 0);
  CHECK_EQ(split.parts.size(), 2);
  CHECK(split.parts[0].num_sms() >= 16 && split.parts[1].num_sms() == split.parts[0].num_sms());
  CHECK(split.rest.get() != nullptr && split.rest.num_sms() > 0);
  CHECK(split.parts[0].native() != split.parts[1].native() && split.rest.native() != split.parts[0].native());
  split.parts.clear();
  THROWS(plinth::GreenContext::split(16, 0), PLINTH_ERROR_INVALID_VALUE);
  THROWS(plinth::GreenContext::split(16, 1000), PLINTH_ERROR_INVALID_VALUE);
}
