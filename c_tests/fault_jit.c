/* Each driver call fails once, in jiterator functions and kernels of modules.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_USE_KERNEL_CACHE=0 */
/* timeout: 600 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"

enum { COUNT = 1000 };

static const char module_text[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry plinth_sleep(.param .u64 cycles)\n{\n  ret;\n}\n";

/* In the shared process the kernel is loaded once; each new process loads it. */
SCENARIO(jiterated_call) {
  int64_t count = COUNT;
  float *memory = NULL;
  plinth_stream_t stream = NULL;
  plinth_jit_function_t function = NULL;
  if (ATTEMPT(plinth_jiterator_create_jit_fn("template <typename T> T next(T x) { return x + T(1); }", NULL, 0, &function)) &&
      ATTEMPT(plinth_device_malloc(COUNT * sizeof *memory, last_device, (void **)&memory)) &&
      ATTEMPT(plinth_stream_create(last_device, 0, &stream))) {
    DLTensor tensor = {memory, {2, last_device}, 1, {2, 32, 1}, &count, NULL, 0};
    const DLTensor *inputs[1] = {&tensor};
    DLTensor *outputs[1] = {&tensor};
    if (ATTEMPT(plinth_jiterator_call(function, inputs, 1, outputs, 1, NULL, 0, stream))) {
      (void)ATTEMPT(plinth_stream_synchronize(stream));
    }
  }
  RETRY(plinth_device_free(memory));
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

SCENARIO(kernel_of_a_module) {
  const int64_t cycles = 1;
  plinth_kernel_launch_t launch = PLINTH_KERNEL_LAUNCH_INIT;
  const plinth_kernel_argument_t arguments[] = {{sizeof(plinth_kernel_argument_t), &cycles, 0, PLINTH_ARGUMENT_INT64, 0}};
  plinth_kernel_module_t module = NULL;
  plinth_kernel_t kernel = NULL;
  plinth_stream_t stream = NULL;
  plinth_kernel_attributes_t attributes = PLINTH_KERNEL_ATTRIBUTES_INIT;
  int32_t blocks = 0;
  launch.shared_bytes = 60 * 1024;
  if (ATTEMPT(plinth_kernel_module_load(module_text, sizeof module_text, last_device, &module)) &&
      ATTEMPT(plinth_kernel_module_get_kernel(module, "plinth_sleep", &kernel)) &&
      ATTEMPT(plinth_kernel_attributes(kernel, &attributes)) &&
      ATTEMPT(plinth_kernel_occupancy(kernel, 32, 0, &blocks)) && ATTEMPT(plinth_stream_create(last_device, 0, &stream)) &&
      ATTEMPT(plinth_kernel_launch(kernel, &launch, arguments, 1, stream))) {
    (void)ATTEMPT(plinth_stream_synchronize(stream));
  }
  RETRY(plinth_kernel_destroy(kernel));
  RETRY(plinth_kernel_module_destroy(module));
}
