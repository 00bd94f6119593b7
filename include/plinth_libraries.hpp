/*!
 * @file plinth_libraries.hpp
 * @brief cuBLAS, cuSOLVER, cuFFT and green contexts in C++17. plinth.hpp includes it.
 *
 * The handles are those of CUDA's own libraries, whose headers are not included here: pass the type, as in
 * `current_blas_handle<cublasHandle_t>()`. plinth owns the handles.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_LIBRARIES_HPP
#define PLINTH_LIBRARIES_HPP

#include "plinth_core.hpp"
#include "plinth_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/* ---- cuBLAS and cuSOLVER ---- */

namespace detail {
template <class Handle>
Handle library_handle(plinth_status_t (*call)(void **)) {
  static_assert(std::is_pointer<Handle>::value, "the handle type of a CUDA library must be a pointer");
  return static_cast<Handle>(output<void *>(call));
}
}  // namespace detail

/*! The handle is set to the thread's current stream, so request it before each use; the same applies to the other
 *  libraries' handles. */
template <class Handle = void *>
Handle current_blas_handle() {
  return detail::library_handle<Handle>(plinth_current_blas_handle);
}
template <class Handle = void *>
Handle current_blaslt_handle() {
  return detail::library_handle<Handle>(plinth_current_blaslt_handle);
}
template <class Handle = void *>
Handle current_solver_handle() {
  return detail::library_handle<Handle>(plinth_current_solver_handle);
}

/*! The precision of products of float32 matrices. */
enum class MatmulPrecision : std::int32_t {
  highest = PLINTH_MATMUL_PRECISION_HIGHEST,
  high = PLINTH_MATMUL_PRECISION_HIGH,
  medium = PLINTH_MATMUL_PRECISION_MEDIUM,
};
enum class BlasLibrary : std::int32_t {
  library_default = PLINTH_BLAS_LIBRARY_DEFAULT,
  cublas = PLINTH_BLAS_LIBRARY_CUBLAS,
  cublaslt = PLINTH_BLAS_LIBRARY_CUBLASLT,
};
enum class LinalgLibrary : std::int32_t {
  library_default = PLINTH_LINALG_LIBRARY_DEFAULT,
  cusolver = PLINTH_LINALG_LIBRARY_CUSOLVER,
  magma = PLINTH_LINALG_LIBRARY_MAGMA,
};

/*! The settings of torch.backends.cuda, for the process. current_blas_handle applies them to the handle; a compute type is
 *  an argument of your own call. */
inline void set_float32_matmul_precision(MatmulPrecision precision) {
  check(plinth_set_float32_matmul_precision(static_cast<std::int32_t>(precision)));
}
inline MatmulPrecision float32_matmul_precision() {
  return static_cast<MatmulPrecision>(detail::output<std::int32_t>(plinth_get_float32_matmul_precision));
}
inline void set_matmul_allow_tf32(bool allow) { check(plinth_set_matmul_allow_tf32(allow)); }
inline bool matmul_allow_tf32() { return detail::output<bool>(plinth_get_matmul_allow_tf32); }
inline void set_matmul_allow_fp16_reduced_precision_reduction(bool allow) {
  check(plinth_set_matmul_allow_fp16_reduced_precision_reduction(allow));
}
inline bool matmul_allow_fp16_reduced_precision_reduction() {
  return detail::output<bool>(plinth_get_matmul_allow_fp16_reduced_precision_reduction);
}
inline void set_matmul_allow_bf16_reduced_precision_reduction(bool allow) {
  check(plinth_set_matmul_allow_bf16_reduced_precision_reduction(allow));
}
inline bool matmul_allow_bf16_reduced_precision_reduction() {
  return detail::output<bool>(plinth_get_matmul_allow_bf16_reduced_precision_reduction);
}
inline void set_preferred_blas_library(BlasLibrary library) {
  check(plinth_set_preferred_blas_library(static_cast<std::int32_t>(library)));
}
inline BlasLibrary preferred_blas_library() {
  return static_cast<BlasLibrary>(detail::output<std::int32_t>(plinth_get_preferred_blas_library));
}
inline void set_preferred_linalg_library(LinalgLibrary library) {
  check(plinth_set_preferred_linalg_library(static_cast<std::int32_t>(library)));
}
inline LinalgLibrary preferred_linalg_library() {
  return static_cast<LinalgLibrary>(detail::output<std::int32_t>(plinth_get_preferred_linalg_library));
}

/*! Workspace for one cuBLASLt call in the thread's current stream. */
struct BlasLtWorkspace {
  void *memory;
  std::size_t bytes;
};

inline BlasLtWorkspace current_blaslt_workspace() {
  BlasLtWorkspace found{};
  check(plinth_current_blaslt_workspace(&found.memory, &found.bytes));
  return found;
}
inline void clear_blas_workspaces() { check(plinth_clear_blas_workspaces()); }

/* ---- cuFFT ---- */

/*! The type of a transform: complex to complex, real to complex, or complex to real. */
enum class CufftTransform : std::int32_t { c2c = PLINTH_CUFFT_C2C, r2c = PLINTH_CUFFT_R2C, c2r = PLINTH_CUFFT_C2R };
enum class CufftDirection : std::int32_t { forward = PLINTH_CUFFT_FORWARD, inverse = PLINTH_CUFFT_INVERSE };

using CufftParams = plinth_cufft_params_t;

/*! The parameters for `batch` contiguous signals of these sizes, with elements of type `Number`: float or double. */
template <class Number = float>
CufftParams cufft_params(CufftTransform transform, std::int64_t batch, std::initializer_list<std::int64_t> sizes) {
  if (sizes.size() < 1 || sizes.size() > 3) throw std::invalid_argument("plinth::cufft_params: pass 1, 2 or 3 sizes");
  CufftParams params{};
  params.struct_size = sizeof params;
  params.rank = static_cast<std::int32_t>(sizes.size());
  params.transform = static_cast<std::int32_t>(transform);
  params.number = data_type<Number>();
  params.sizes[0] = batch;
  std::int64_t *next = params.sizes + 1;
  for (const std::int64_t size : sizes) {
    *next++ = size;
  }
  return params;
}

/*! A reference to a plan in the device's cache, released by the destructor. Movable, not copyable. */
class CufftPlan {
 public:
  explicit CufftPlan(const CufftParams &params, std::int32_t device = -1)
      : plan_(detail::output<plinth_cufft_plan_t>(
            [&](plinth_cufft_plan_t *out) { return plinth_cufft_plan_create(&params, device, out); })) {}
  ~CufftPlan() { static_cast<void>(plinth_cufft_plan_destroy(plan_)); }
  CufftPlan(CufftPlan &&other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  CufftPlan &operator=(CufftPlan &&other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  CufftPlan(const CufftPlan &) = delete;
  CufftPlan &operator=(const CufftPlan &) = delete;

  plinth_cufft_plan_t get() const noexcept { return plan_; }
  void execute(const void *input, void *output, CufftDirection direction = CufftDirection::forward) const {
    check(plinth_cufft_execute(plan_, input, output, static_cast<std::int32_t>(direction)));
  }

 private:
  plinth_cufft_plan_t plan_;
};

/*! Locks a plan for the calling thread for the lifetime of the object, for direct calls of cuFFT. The plan must
 *  outlive it. */
class CufftPlanGuard {
 public:
  explicit CufftPlanGuard(const CufftPlan &plan) : plan_(plan.get()) {
    detail::acquire([&] { return plinth_cufft_plan_acquire(plan_, &native_); });
  }
  ~CufftPlanGuard() { static_cast<void>(plinth_cufft_plan_release(plan_)); }
  CufftPlanGuard(const CufftPlanGuard &) = delete;
  CufftPlanGuard &operator=(const CufftPlanGuard &) = delete;

  /*! The cufftHandle. */
  std::int32_t native() const noexcept { return native_; }

 private:
  plinth_cufft_plan_t plan_;
  std::int32_t native_ = 0;
};

/*! The functions of torch.backends.cuda.cufft_plan_cache. */
namespace cufft_plan_cache {

inline std::int64_t max_size(std::int32_t device = -1) {
  return detail::output<std::int64_t>([&](std::int64_t *out) { return plinth_cufft_plan_cache_get_max_size(device, out); });
}
inline void set_max_size(std::int64_t size, std::int32_t device = -1) {
  check(plinth_cufft_plan_cache_set_max_size(device, size));
}
inline std::int64_t size(std::int32_t device = -1) {
  return detail::output<std::int64_t>([&](std::int64_t *out) { return plinth_cufft_plan_cache_size(device, out); });
}
inline void clear(std::int32_t device = -1) { check(plinth_cufft_plan_cache_clear(device)); }

}  // namespace cufft_plan_cache

/* ---- Green contexts ---- */

/*! A subset of a device's multiprocessors, destroyed by the destructor. Movable, not copyable. */
class GreenContext {
 public:
  struct Split;
  /*! Divides a device into `count` green contexts that do not overlap, and one of what is left, if anything is. */
  static Split split(std::int32_t num_sms, std::size_t count, std::int32_t device = -1);

  explicit GreenContext(std::int32_t num_sms, std::int32_t device = -1)
      : context_(detail::output<plinth_green_context_t>(
            [&](plinth_green_context_t *out) { return plinth_green_context_create(num_sms, device, out); })) {}
  ~GreenContext() { static_cast<void>(plinth_green_context_destroy(context_)); }
  GreenContext(GreenContext &&other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  GreenContext &operator=(GreenContext &&other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  GreenContext(const GreenContext &) = delete;
  GreenContext &operator=(const GreenContext &) = delete;

  plinth_green_context_t get() const noexcept { return context_; }
  /*! Destroys it now, and throws on errors, after which it still exists. */
  void destroy() {
    detail::acquire([&] { return plinth_green_context_destroy(context_); });
    context_ = nullptr;
  }
  /*! Returns one of its streams, in rotation. */
  StreamView stream() const {
    return StreamView(detail::output<plinth_stream_t>(
        [&](plinth_stream_t *out) { return plinth_green_context_stream(context_, out); }));
  }
  std::int32_t num_sms() const {
    return detail::output<std::int32_t>(
        [&](std::int32_t *out) { return plinth_green_context_num_sms(context_, out); });
  }
  std::int32_t device() const {
    return detail::output<std::int32_t>([&](std::int32_t *out) { return plinth_green_context_device(context_, out); });
  }
  /*! The CUgreenCtx, and the CUcontext that was created from it. */
  void *native() const {
    return detail::output<void *>([&](void **out) { return plinth_green_context_native(context_, out, nullptr); });
  }
  void *as_context() const {
    return detail::output<void *>([&](void **out) { return plinth_green_context_native(context_, nullptr, out); });
  }

 private:
  explicit GreenContext(plinth_green_context_t context) noexcept : context_(context) {}

  plinth_green_context_t context_;
};

/*! The green contexts of a split. `rest` has no handle if nothing is left. */
struct GreenContext::Split {
  std::vector<GreenContext> parts;
  GreenContext rest;
};

inline GreenContext::Split GreenContext::split(std::int32_t num_sms, std::size_t count, std::int32_t device) {
  std::vector<plinth_green_context_t> made(count == 0 ? 1 : count);
  Split result{{}, GreenContext(plinth_green_context_t{nullptr})};
  result.parts.reserve(made.size());
  check(plinth_green_context_split(num_sms, count, device, made.data(), &result.rest.context_));
  for (plinth_green_context_t part : made) {
    result.parts.push_back(GreenContext(part));
  }
  return result;
}

/*! Makes a green context current in the calling thread for the lifetime of the object. The green context must
 *  outlive it. */
class GreenContextGuard {
 public:
  explicit GreenContextGuard(const GreenContext &context) : context_(context.get()) {
    detail::acquire([&] { return plinth_green_context_set_context(context_); });
  }
  ~GreenContextGuard() { static_cast<void>(plinth_green_context_pop_context(context_)); }
  GreenContextGuard(const GreenContextGuard &) = delete;
  GreenContextGuard &operator=(const GreenContextGuard &) = delete;

 private:
  plinth_green_context_t context_;
};

}  // namespace plinth

#endif

#endif /* PLINTH_LIBRARIES_HPP */
