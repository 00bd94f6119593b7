/* A fake cuFFT that, like NVIDIA's, does not export the symbol that permits its use on the host device.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define FOR_GPUS
#include "fake_cufft.c"
