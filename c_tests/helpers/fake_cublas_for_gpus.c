/* A cuBLAS that does not say that it works on the host device, as NVIDIA's does not.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define FOR_GPUS
#include "fake_cublas.c"
