/*!
 * @defgroup plinth_kernel Kernels
 *
 * Compiles CUDA C++, loads modules, and launches kernels: torch.cuda._compile_kernel. NVRTC compiles for a GPU, the
 * machine's C++ compiler for the host device. docs/compile_kernel.md lists what the host device does not have.
 *
 * The caller owns the handles of kernels and modules and destroys them. A compiled kernel stays loaded until the
 * process ends. A module is unloaded when its handle and those of all its kernels are destroyed; no launch may be in
 * progress then, and no graph may contain one. Arguments of a launch are copied before the call returns; the memory
 * that they point to must stay valid until the kernel is done.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_KERNEL_H
#define PLINTH_KERNEL_H

#include "base.h"

/*!
 * @file plinth/kernel.h
 * @brief Kernels.
 */

/*!
 * @addtogroup plinth_kernel
 * @{
 */

/**
 * A kernel that was compiled from source code or found in a module.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle.
 */
typedef struct plinth_kernel plinth_kernel;

/**
 * A module that was loaded from an image. Opaque and checked, as plinth_kernel.
 */
typedef struct plinth_kernel_module plinth_kernel_module;

/**
 * The handle of a kernel.
 */
typedef struct plinth_kernel *plinth_kernel_t;

/**
 * The handle of a module.
 */
typedef struct plinth_kernel_module *plinth_kernel_module_t;

/**
 * The attributes of a kernel.
 *
 * The struct grows at its end in newer versions. Set struct_size to sizeof(plinth_kernel_attributes_t) before the
 * call, as PLINTH_KERNEL_ATTRIBUTES_INIT does.
 */
typedef struct plinth_kernel_attributes_t {
  /**
   * In: the size of the struct in bytes. Out: the number of bytes that were written.
   */
  size_t struct_size;
  /**
   * Registers per thread.
   */
  int32_t registers;
  /**
   * Static shared memory per block, in bytes.
   */
  int32_t shared_bytes;
  /**
   * The current limit on the dynamic shared memory per block of a launch, in bytes.
   */
  int32_t max_dynamic_shared_bytes;
  /**
   * Local memory per thread, in bytes, including spilled registers.
   */
  int32_t local_bytes;
  /**
   * Constant memory, in bytes.
   */
  int32_t const_bytes;
  /**
   * The maximum number of threads in a block.
   */
  int32_t max_threads_per_block;
  /**
   * The virtual architecture for which the kernel was compiled; 90 for compute_90.
   */
  int32_t ptx_version;
  /**
   * The architecture of the kernel's machine code; 90 for sm_90.
   */
  int32_t binary_version;
} plinth_kernel_attributes_t;

/*! An initializer for a plinth_kernel_attributes_t. */
#define PLINTH_KERNEL_ATTRIBUTES_INIT {sizeof(plinth_kernel_attributes_t), 0, 0, 0, 0, 0, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Compiles CUDA C++ with NVRTC and returns the image: torch.cuda._utils._nvrtc_compile.
 *
 * The call loads nothing. It needs a device only if compute_capability is NULL.
 *
 * @param kernel_source The source code. The compiler's log numbers its lines from 1 and calls the file "kernel.cu".
 * @param kernel_name The kernel's name as in the source: "add" or "outer::scale". The name of a template instance
 *        includes the arguments in angle brackets.
 * @param compute_capability The target: "90", "90a" or "sm_90" produces a cubin, "compute_90" PTX; NULL for the
 *        current device's compute capability.
 * @param cuda_include_dirs A NULL-terminated array of include directories; NULL for none. After these, the include
 *        directory that belongs to the NVRTC that was found is searched for CUDA's own headers, if it exists.
 * @param nvcc_options A NULL-terminated array of further options for NVRTC; NULL for none. -default-device is always on.
 * @param image Out: the image. The caller owns it and frees it with free().
 * @param bytes Out: the size of the image in bytes.
 * @param lowered_name Out: the kernel's name in the image. The caller owns it and frees it with free().
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an invalid compute capability, and
 *         for an option that names an architecture; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC;
 *         PLINTH_ERROR_COMPILATION_FAILED with the compiler's log; PLINTH_ERROR_NOT_SUPPORTED for a device that is
 *         too old for NVRTC; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization if compute_capability is NULL.
 */
PLINTH_API
plinth_status_t plinth_nvrtc_compile(const char *kernel_source,
                                     const char *kernel_name,
                                     const char *compute_capability,
                                     const char *const *cuda_include_dirs,
                                     const char *const *nvcc_options,
                                     void **image,
                                     size_t *bytes,
                                     char **lowered_name)
PLINTH_NOEXCEPT;

/**
 * Compiles a kernel from CUDA C++ and loads it: torch.cuda._compile_kernel.
 *
 * The kernel stays loaded for the lifetime of the process. On the host device the call runs the machine's C++ compiler
 * (PLINTH_CXX, CXX, c++, g++ or clang++), and the error of a kernel that fails names the kernel, the block, the thread
 * and the line.
 *
 * @param kernel_source As plinth_nvrtc_compile.
 * @param kernel_name As plinth_nvrtc_compile.
 * @param compute_capability As plinth_nvrtc_compile; NULL for that of the device.
 * @param cuda_include_dirs As plinth_nvrtc_compile.
 * @param nvcc_options As plinth_nvrtc_compile.
 * @param device The device index; -1 for the current device.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return As plinth_nvrtc_compile; on the host device also PLINTH_ERROR_COMPILER_UNAVAILABLE without a C++ compiler, and
 *         PLINTH_ERROR_INVALID_VALUE for an option that the host device does not know; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DRIVER for an image that the device does not accept; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_compile_kernel(const char *kernel_source,
                                      const char *kernel_name,
                                      const char *compute_capability,
                                      const char *const *cuda_include_dirs,
                                      const char *const *nvcc_options,
                                      int32_t device,
                                      plinth_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Loads a module from an image: torch.cuda._utils._cuda_load_module.
 *
 * @param image PTX text, a cubin or a fatbin.
 * @param bytes The size in bytes. The terminating NUL of a text may be included or not.
 * @param device The device index; -1 for the current device.
 * @param module Out: the module. The caller owns it and destroys it with plinth_kernel_module_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a size of 0, and for a cubin or a fatbin
 *         that is shorter than its header states; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILATION_FAILED for PTX
 *         that the driver cannot compile, with the driver's log; PLINTH_ERROR_DRIVER for an image that the driver does
 *         not accept; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_load(const void *image,
                                          size_t bytes,
                                          int32_t device,
                                          plinth_kernel_module_t *module)
PLINTH_NOEXCEPT;

/**
 * Gets a kernel of a module.
 *
 * @param module The module.
 * @param name The kernel's name in the image. For C++ that is not extern "C", this is the lowered name.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name
 *         that the module does not have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_get_kernel(plinth_kernel_module_t module,
                                                const char *name,
                                                plinth_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Gets a variable of a kernel's module, `__constant__` or `__device__`: cudaGetSymbolAddress.
 *
 * The address is that of device memory, of the kernel's device. Copies may read and write it, in the order of their
 * streams: copy to a `__constant__` variable before the launches that use it, in their stream. Each module has variables of
 * its own; kernels of plinth_compile_kernel are modules of one kernel each. On the host device a variable that is const in
 * C++ is not found.
 *
 * @param kernel The kernel.
 * @param name The variable's name in the image: as in the source at global scope; the mangled name in a namespace, and for
 *        a variable that is static on the host device. On a GPU static variables are not found.
 * @param address Out: the address, which is valid as long as the module is loaded.
 * @param bytes Out: the size in bytes.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name that the
 *         module does not have, which may be that of a variable that no kernel uses; PLINTH_ERROR_DRIVER; the errors of
 *         initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_symbol(plinth_kernel_t kernel,
                                     const char *name,
                                     void **address,
                                     size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Gets a variable of a module, as plinth_kernel_symbol.
 *
 * @param module The module.
 * @param name As in plinth_kernel_symbol.
 * @param address Out: the address, which is valid as long as the module is loaded.
 * @param bytes Out: the size in bytes.
 * @return As plinth_kernel_symbol.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_symbol(plinth_kernel_module_t module,
                                            const char *name,
                                            void **address,
                                            size_t *bytes)
PLINTH_NOEXCEPT;

/**
 * Destroys the handle of a module.
 *
 * The module is unloaded when its handle and the handles of all its kernels are destroyed. At that time no launch of
 * its kernels may be in progress, and no graph may contain one.
 *
 * @param module The module; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the handle remains valid.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_destroy(plinth_kernel_module_t module)
PLINTH_NOEXCEPT;

/**
 * Destroys the handle of a kernel.
 *
 * A kernel from plinth_compile_kernel stays loaded. For a kernel of a module see plinth_kernel_module_destroy.
 *
 * @param kernel The kernel; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the handle remains valid.
 */
PLINTH_API
plinth_status_t plinth_kernel_destroy(plinth_kernel_t kernel)
PLINTH_NOEXCEPT;

/**
 * Gets the attributes of a kernel.
 *
 * @param kernel The kernel.
 * @param attributes In: struct_size. Out: the attributes. On the host device sizes and versions are 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
 *         struct_size was not set; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_attributes(plinth_kernel_t kernel,
                                         struct plinth_kernel_attributes_t *attributes)
PLINTH_NOEXCEPT;

/**
 * Gets the number of blocks of a kernel that one multiprocessor can run at the same time.
 *
 * @param kernel The kernel.
 * @param threads The number of threads in a block.
 * @param shared_bytes The dynamic shared memory per block, in bytes. The call raises the kernel's limit to this
 *        size, as plinth_kernel_set_shared_memory_config does.
 * @param blocks Out: the number of blocks.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for 0
 *         threads, and for more shared memory than a block of the device can have; PLINTH_ERROR_DRIVER; the errors
 *         of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_occupancy(plinth_kernel_t kernel,
                                        uint32_t threads,
                                        uint32_t shared_bytes,
                                        int32_t *blocks)
PLINTH_NOEXCEPT;

/**
 * Raises the limit on the dynamic shared memory of a kernel's launches.
 *
 * torch's kernels need this call before a launch with more than 48 KiB. plinth_kernel_launch raises the limit
 * itself. The call never lowers the limit.
 *
 * @param kernel The kernel.
 * @param shared_bytes The limit in bytes per block.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for more than a
 *         block of the device can have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_set_shared_memory_config(plinth_kernel_t kernel,
                                                       uint32_t shared_bytes)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_kernel_launch Launches of kernels
 *
 * Arguments are copied before the call returns; the memory that they point to must stay valid until the kernel is done.
 *
 * @{
 */

/**
 * A tensor argument: `value` points to a DLTensor, and the kernel receives the address of its first element.
 */
#define PLINTH_ARGUMENT_TENSOR 0

/**
 * An address argument: `value` points to the pointer.
 */
#define PLINTH_ARGUMENT_POINTER 1

/**
 * A bool argument: `value` points to it.
 */
#define PLINTH_ARGUMENT_BOOL 2

/**
 * A 32-bit integer argument, signed or unsigned: `value` points to it.
 */
#define PLINTH_ARGUMENT_INT32 3

/**
 * A 64-bit integer argument, signed or unsigned: `value` points to it.
 */
#define PLINTH_ARGUMENT_INT64 4

/**
 * A float argument: `value` points to it.
 */
#define PLINTH_ARGUMENT_FLOAT32 5

/**
 * A double argument: `value` points to it.
 */
#define PLINTH_ARGUMENT_FLOAT64 6

/**
 * An argument of any other type, typically a struct: `value` points to its `bytes` bytes.
 */
#define PLINTH_ARGUMENT_BYTES 7

/**
 * A cooperative launch: all blocks run at the same time and may wait for each other (grid of cooperative groups).
 */
#define PLINTH_LAUNCH_COOPERATIVE 1

/**
 * The launch configuration of a kernel. An extent of 0 means 1. PLINTH_KERNEL_LAUNCH_INIT is one block of one
 * thread.
 */
typedef struct plinth_kernel_launch_t {
  /**
   * sizeof(plinth_kernel_launch_t).
   */
  size_t struct_size;
  /**
   * The number of blocks in the grid, along x, y and z.
   */
  uint32_t grid[3];
  /**
   * The number of threads in a block, along x, y and z.
   */
  uint32_t block[3];
  /**
   * The number of blocks in a cluster, along x, y and z; all 0 for no clusters. The grid must be a multiple of it.
   */
  uint32_t cluster[3];
  /**
   * Dynamic shared memory per block, in bytes. It may exceed 48 KiB.
   */
  uint32_t shared_bytes;
  /**
   * PLINTH_LAUNCH_COOPERATIVE, or 0.
   */
  uint32_t flags;
} plinth_kernel_launch_t;

/*! An initializer for a plinth_kernel_launch_t: one block of one thread. */
#define PLINTH_KERNEL_LAUNCH_INIT {sizeof(plinth_kernel_launch_t), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 0, 0}

/**
 * An argument of a launch.
 */
typedef struct plinth_kernel_argument_t {
  /**
   * sizeof(plinth_kernel_argument_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * A pointer to the value.
   */
  const void *value;
  /**
   * The size of the value in bytes if `kind` is PLINTH_ARGUMENT_BYTES; otherwise 0.
   */
  size_t bytes;
  /**
   * One of the PLINTH_ARGUMENT_ constants.
   */
  int32_t kind;
  /**
   * How the kernel accesses the elements of a tensor, for the stream sanitizer: PLINTH_SANITIZER_READ,
   * PLINTH_SANITIZER_WRITE, or both. 0 means unspecified and counts as a read. This causes no false report: a read
   * conflicts only with the writes of others, and these are an error whatever the kernel does. Must be 0 for other
   * kinds of argument.
   */
  uint32_t access;
} plinth_kernel_argument_t;

/*! An initializer for a plinth_kernel_argument_t. */
#define PLINTH_KERNEL_ARGUMENT_INIT {sizeof(plinth_kernel_argument_t), NULL, 0, 0, 0}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Launches a kernel in a stream, asynchronously.
 *
 * If the launch needs more than 48 KiB of dynamic shared memory, the call raises the kernel's limit. In a capture
 * the launch becomes a node of the graph.
 *
 * Arguments are checked against the kernel's parameters if the driver can report them (CUDA 12.4 or later): the
 * number of arguments and the size of each.
 *
 * The stream sanitizer records the launch under the kernel's name, with the `access` of each tensor. It does not
 * know what the kernel does with address arguments; report these accesses with plinth_sanitizer_operation.
 *
 * @param kernel The kernel.
 * @param launch The launch configuration.
 * @param arguments The arguments, whose values are copied before the call returns; NULL for none.
 * @param count The number of arguments.
 * @param stream The stream, of the kernel's device; NULL for that device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid kernel or stream;
 *         PLINTH_ERROR_INVALID_VALUE if struct_size was not set, for arguments that do not match the kernel's
 *         parameters, for invalid flags or access, for more threads or shared memory than a block can have, and for
 *         a grid that is not a multiple of the cluster; PLINTH_ERROR_DEVICE_MISMATCH for a tensor or a stream of
 *         another device, and for a tensor in memory that devices cannot access; PLINTH_ERROR_RACE, see
 *         plinth_sanitizer_enable; PLINTH_ERROR_NOT_SUPPORTED for clusters and cooperative launches if the driver or
 *         the device does not support them; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_launch(plinth_kernel_t kernel,
                                     const struct plinth_kernel_launch_t *launch,
                                     const struct plinth_kernel_argument_t *arguments,
                                     size_t count,
                                     plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_host_kernel Kernels of the host device
 *
 *
 * @{
 */

/**
 * A launch that a function of the program runs in place of a kernel. It is valid during the call.
 */
typedef struct plinth_host_launch_t {
  /**
   * sizeof(plinth_host_launch_t) in the library's version of the header.
   */
  size_t struct_size;
  /**
   * The number of blocks in the grid, along x, y and z.
   */
  uint32_t grid[3];
  /**
   * The number of threads in a block, along x, y and z.
   */
  uint32_t block[3];
  /**
   * Dynamic shared memory per block, in bytes.
   */
  uint32_t shared_bytes;
  /**
   * The device number.
   */
  int32_t device;
  /**
   * The address of each parameter's value, which need not be aligned.
   */
  const void *const *parameters;
  /**
   * The number of parameters.
   */
  size_t count;
} plinth_host_launch_t;

/*! An initializer for a plinth_host_launch_t: one block of one thread, without parameters. */
#define PLINTH_HOST_LAUNCH_INIT {sizeof(plinth_host_launch_t), {1, 1, 1}, {1, 1, 1}, 0, 0, NULL, 0}

/**
 * A function that does on the CPU what a kernel does on a GPU: all blocks of one launch. It returns 0, or an error of its
 * own, which makes the launch fail with PLINTH_ERROR_LAUNCH_FAILED.
 *
 * A thread of the library calls it when the launch's turn in its stream has come; launches in several streams, or on
 * several devices, at the same time. Addresses of device memory can be used as pointers. It must not unwind or throw, and
 * must not call CUDA, or a plinth function that calls CUDA.
 */
typedef int32_t (*plinth_host_kernel_callback_t)(const struct plinth_host_launch_t *launch, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives a kernel a function that runs on the host device in its place.
 *
 * For kernels that the machine's compiler cannot compile: those of PTX, cubins and fatbins, and CUDA C++ that uses what
 * the host device does not have. plinth_kernel_module_load accepts any such image on the host device, and
 * plinth_kernel_module_get_kernel finds the kernels that have a function. plinth_compile_kernel takes the function, too, and
 * does not compile the source, if the name that it is given is the registered one. On a GPU the call has no effect.
 *
 * Kernels that were found before keep the function that they had. Any thread may register.
 *
 * @param name The kernel's name, as it will be passed to plinth_kernel_module_get_kernel (for C++ that is not extern "C",
 *        the lowered name) or to plinth_compile_kernel; not one that begins with "plinth_". It is copied.
 * @param parameter_bytes The size of each parameter in bytes, in their order; NULL if `count` is 0. They are copied.
 * @param count The number of parameters.
 * @param function The function; NULL removes the registration of the name, if there is one.
 * @param context Passed to the function. It must stay valid as long as a kernel with the function may be launched, or may
 *        run in a graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an empty name, a name of the library, and
 *         parameters of 0 or of more than 32764 bytes in all; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_host_kernel_register(const char *name,
                                            const size_t *parameter_bytes,
                                            size_t count,
                                            plinth_host_kernel_callback_t function,
                                            void *context)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_KERNEL_H */
