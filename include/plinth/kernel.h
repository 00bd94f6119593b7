/*!
 * @defgroup plinth_kernel Kernels
 *
 * Compiles CUDA C++ with NVRTC, loads modules, and launches kernels: torch.cuda._compile_kernel. The host device does
 * not run CUDA C++.
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
 * An argument that is a tensor: `value` leads to a DLTensor, and the kernel gets the address of its first element.
 */
#define PLINTH_ARGUMENT_TENSOR 0

/**
 * An argument that is an address: `value` leads to the pointer.
 */
#define PLINTH_ARGUMENT_POINTER 1

/**
 * An argument that is a bool: `value` leads to it.
 */
#define PLINTH_ARGUMENT_BOOL 2

/**
 * An argument that is a 32-bit integer, of either sign: `value` leads to it.
 */
#define PLINTH_ARGUMENT_INT32 3

/**
 * An argument that is a 64-bit integer, of either sign: `value` leads to it.
 */
#define PLINTH_ARGUMENT_INT64 4

/**
 * An argument that is a float: `value` leads to it.
 */
#define PLINTH_ARGUMENT_FLOAT32 5

/**
 * An argument that is a double: `value` leads to it.
 */
#define PLINTH_ARGUMENT_FLOAT64 6

/**
 * An argument of any other type, a struct mostly: `value` leads to its `bytes` bytes.
 */
#define PLINTH_ARGUMENT_BYTES 7

/**
 * All blocks of a launch run at the same time, and may wait for each other (cooperative groups' grid).
 */
#define PLINTH_LAUNCH_COOPERATIVE 1

/**
 * A kernel that was compiled from a program's own source, or found in a module. Opaque, and checked: a handle that was
 * destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 */
typedef struct plinth_kernel plinth_kernel;

/**
 * A module that was loaded from an image. Opaque, and checked.
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
 * What is known of a kernel.
 *
 * The struct grows at its end in newer versions; set struct_size to sizeof(plinth_kernel_attributes_t) before the call, as
 * PLINTH_KERNEL_ATTRIBUTES_INIT does.
 */
typedef struct plinth_kernel_attributes_t {
  /**
   * In: the bytes of the struct. Out: how many of them were filled.
   */
  size_t struct_size;
  /**
   * Registers a thread.
   */
  int32_t registers;
  /**
   * Static shared memory, in bytes a block.
   */
  int32_t shared_bytes;
  /**
   * The most dynamic shared memory that a launch may have as things are, in bytes.
   */
  int32_t max_dynamic_shared_bytes;
  /**
   * Local memory, in bytes a thread: what did not fit into registers.
   */
  int32_t local_bytes;
  /**
   * Constant memory, in bytes.
   */
  int32_t const_bytes;
  /**
   * The most threads of a block.
   */
  int32_t max_threads_per_block;
  /**
   * The virtual architecture that it was compiled for, 90 for compute_90.
   */
  int32_t ptx_version;
  /**
   * The architecture that its code is for, 90 for sm_90.
   */
  int32_t binary_version;
} plinth_kernel_attributes_t;

/*! An initializer for a plinth_kernel_attributes_t. */
#define PLINTH_KERNEL_ATTRIBUTES_INIT {sizeof(plinth_kernel_attributes_t), 0, 0, 0, 0, 0, 0, 0, 0}

/**
 * How a kernel is launched. An extent of 0 is 1. PLINTH_KERNEL_LAUNCH_INIT is one block of one thread.
 */
typedef struct plinth_kernel_launch_t {
  /**
   * sizeof(plinth_kernel_launch_t).
   */
  size_t struct_size;
  /**
   * How many blocks, along x, y and z.
   */
  uint32_t grid[3];
  /**
   * How many threads a block has.
   */
  uint32_t block[3];
  /**
   * How many blocks a cluster has; all 0 for no clusters. The grid must be a multiple of it.
   */
  uint32_t cluster[3];
  /**
   * Dynamic shared memory, in bytes a block; more than 48 KiB, too.
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
   * Where the value is.
   */
  const void *value;
  /**
   * The bytes of the value where `kind` is PLINTH_ARGUMENT_BYTES; else 0.
   */
  size_t bytes;
  /**
   * One of the PLINTH_ARGUMENT_ constants.
   */
  int32_t kind;
  /**
   * What the kernel does to the elements of a tensor, for the stream sanitizer: PLINTH_SANITIZER_READ,
   * PLINTH_SANITIZER_WRITE, or both. 0 leaves that open, and counts as reading, which is never too much: it is in conflict
   * with what others write, and that is wrong whatever the kernel does. 0 for what is no tensor.
   */
  uint32_t access;
} plinth_kernel_argument_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Compiles CUDA C++ with NVRTC, and gives the image back: torch.cuda._utils._nvrtc_compile. Loads nothing, and needs a device only
 * where no compute capability is named. Thread-safe.
 *
 * @param kernel_source The source. The compiler's log counts its lines from 1, and calls it "kernel.cu".
 * @param kernel_name The kernel, as the source writes its name: "add" or "outer::scale"; of a template with its arguments in
 *        angle brackets.
 * @param compute_capability What is compiled for: "90", "90a" or "sm_90" gives a cubin, "compute_90" PTX; NULL for the current
 *        device's.
 * @param cuda_include_dirs Where headers are looked for, a list that ends in NULL; NULL for none. CUDA's own are looked for behind
 *        them in the include folder that belongs to the NVRTC that was found, if there is one.
 * @param nvcc_options More options for NVRTC, a list that ends in NULL; NULL for none.
 * @param image Out: the image, to be freed with free().
 * @param bytes Out: its size.
 * @param lowered_name Out: the kernel's name in the image, to be freed with free().
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a compute capability that is none, and for an
 *         option that names an architecture; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC;
 *         PLINTH_ERROR_COMPILATION_FAILED with the compiler's log; PLINTH_ERROR_NOT_SUPPORTED for a device older than NVRTC
 *         knows; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization where the device is asked.
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
 * Compiles a kernel from CUDA C++ and loads it: torch.cuda._compile_kernel. It stays loaded for as long as the process lives.
 * Thread-safe. The host device runs no CUDA C++.
 *
 * @param kernel_source As plinth_nvrtc_compile.
 * @param kernel_name As plinth_nvrtc_compile.
 * @param compute_capability As plinth_nvrtc_compile; NULL for that of the device.
 * @param cuda_include_dirs As plinth_nvrtc_compile.
 * @param nvcc_options As plinth_nvrtc_compile.
 * @param device The device; -1 for the current one.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return As plinth_nvrtc_compile; PLINTH_ERROR_NOT_SUPPORTED on the host device; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_DRIVER for an image that the device does not take; the errors of initialization.
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
 * Loads a module from an image: torch.cuda._utils._cuda_load_module. Thread-safe.
 *
 * @param image PTX, which is text; a cubin; or a fatbin.
 * @param bytes Its size, a text's with or without the NUL at its end.
 * @param device The device; -1 for the current one.
 * @param module Out: the module. The caller owns it and destroys it with plinth_kernel_module_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no bytes; PLINTH_ERROR_INVALID_DEVICE;
 *         PLINTH_ERROR_COMPILATION_FAILED for PTX that the driver does not compile, with its log; PLINTH_ERROR_DRIVER for an image
 *         that it does not take; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_load(const void *image,
                                          size_t bytes,
                                          int32_t device,
                                          plinth_kernel_module_t *module)
PLINTH_NOEXCEPT;

/**
 * Finds a kernel of a module. Thread-safe.
 *
 * @param module The module.
 * @param name The kernel's name in the image: of C++ that is not extern "C", the lowered one.
 * @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name that the
 *         module does not have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_get_kernel(plinth_kernel_module_t module,
                                                const char *name,
                                                plinth_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Destroys a module's handle. It is unloaded when that and all of its kernels' handles are destroyed: then no launch of them
 * may be under way, and no graph may have one.
 *
 * @param module The module; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
 */
PLINTH_API
plinth_status_t plinth_kernel_module_destroy(plinth_kernel_module_t module)
PLINTH_NOEXCEPT;

/**
 * Destroys a kernel's handle. What plinth_compile_kernel compiled stays loaded; of a kernel of a module see
 * plinth_kernel_module_destroy.
 *
 * @param kernel The kernel; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
 */
PLINTH_API plinth_status_t plinth_kernel_destroy(plinth_kernel_t kernel) PLINTH_NOEXCEPT;

/**
 * Tells what is known of a kernel. Thread-safe.
 *
 * @param kernel The kernel.
 * @param attributes In: struct_size. Out: the attributes. On the host device sizes and versions are 0.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size that
 *         was not set; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_attributes(plinth_kernel_t kernel,
                                         struct plinth_kernel_attributes_t *attributes)
PLINTH_NOEXCEPT;

/**
 * Tells how many blocks of a kernel one multiprocessor runs at once. Thread-safe.
 *
 * @param kernel The kernel.
 * @param threads The threads of a block.
 * @param shared_bytes The dynamic shared memory of a block, in bytes; the kernel may have as much from then on.
 * @param blocks Out: how many blocks.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no threads, and for
 *         more shared memory than a block of the device can have; PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_occupancy(plinth_kernel_t kernel,
                                        uint32_t threads,
                                        uint32_t shared_bytes,
                                        int32_t *blocks)
PLINTH_NOEXCEPT;

/**
 * Lets launches of a kernel have so much dynamic shared memory, as torch's kernels want it before they are launched with more
 * than 48 KiB. plinth_kernel_launch does so itself. Thread-safe.
 *
 * @param kernel The kernel.
 * @param shared_bytes The bytes a block.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for more than a block of the device can have;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_kernel_set_shared_memory_config(plinth_kernel_t kernel,
                                                       uint32_t shared_bytes)
PLINTH_NOEXCEPT;

/**
 * Launches a kernel in a stream, asynchronously. More than 48 KiB of dynamic shared memory is asked for where it is needed. In a
 * capture the launch becomes a node of the graph. Thread-safe.
 *
 * Arguments are checked against the kernel's parameters, as far as the driver tells them (from CUDA 12.4 on): their number, and
 * the bytes of each.
 *
 * The stream sanitizer knows the launch by the kernel's name, with what `access` says of each tensor; of addresses it knows
 * nothing, and is told by plinth_sanitizer_operation.
 *
 * @param kernel The kernel.
 * @param launch Grid, block, and what else there is to say.
 * @param arguments The arguments, whose values are copied before the call returns; NULL for none.
 * @param count How many there are.
 * @param stream The stream, of the kernel's device; NULL for the current device's default stream.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a kernel or stream that is none;
 *         PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set, arguments that are not the kernel's, flags and an
 *         access that are none, for more threads or shared memory than a block can have, and for a grid that is no multiple of
 *         the cluster; PLINTH_ERROR_DEVICE_MISMATCH for a tensor or a stream of another device, and a tensor in memory that
 *         devices cannot use; PLINTH_ERROR_RACE, as plinth_sanitizer_enable says;
 *         PLINTH_ERROR_NOT_SUPPORTED for clusters and cooperative launches where the driver or the device has none;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
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

#endif /* PLINTH_KERNEL_H */
