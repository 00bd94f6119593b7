// The words that CUDA C++ adds to C++, for a compiler that knows none of them: every function and variable is of the host.
// A variable in shared memory belongs to the thread that runs the block; no other block runs in that thread meanwhile.
#pragma once

#define PLINTH_HOST 1
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif

#define __global__
#define __device__
#define __host__
// The program may write the variable, also one that nothing in the source writes.
#define __constant__ __attribute__((used))
#define __managed__
#define __grid_constant__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline_hint__
// The bound is where entry.h can read it, also where it depends on the parameters of a template.
#ifdef __clang__
#define __launch_bounds__(...) __attribute__((address_space(plinth_host::first_of(__VA_ARGS__))))
#else
#define PLINTH_HOST_BOUND(...) sizeof(plinth_host::Bytes<plinth_host::first_of(__VA_ARGS__)>)
#define __launch_bounds__(...) \
  __attribute__((patchable_function_entry(PLINTH_HOST_BOUND(__VA_ARGS__), PLINTH_HOST_BOUND(__VA_ARGS__))))
#endif
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict
#define __nv_pure__ __attribute__((pure))

namespace plinth_host {
template <typename... T> constexpr unsigned first_of(unsigned first, T...) { return first; }
template <unsigned count> struct Bytes { char bytes[count]; };
}  // namespace plinth_host

// Marks functions whose accesses checks.h must not see. They are not part of a function whose accesses it sees.
#if defined(PLINTH_HOST_CHECKS) && defined(__clang__)
#define PLINTH_HOST_UNCHECKED __attribute__((disable_sanitizer_instrumentation, noinline))
#elif defined(PLINTH_HOST_CHECKS)
#define PLINTH_HOST_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#else
#define PLINTH_HOST_UNCHECKED
#endif
