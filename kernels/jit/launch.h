// The kernel itself, of the struct `kernel` that was made for it.
#ifndef PLINTH_HOST
extern "C" __global__ void __launch_bounds__(plinth_jit::THREADS)
    PLINTH_ENTRY(const __grid_constant__ plinth_jit::parameters<plinth_jit::kernel> given) {
  plinth_jit::thread(given.tensors, given.values, blockIdx.x, threadIdx.x);
}
#else
extern "C" {
// What the host device's loader looks for beside a kernel: the bytes of its parameter.
extern __attribute__((visibility("default"))) const unsigned PLINTH_ENTRY_BYTES;
const unsigned PLINTH_ENTRY_BYTES = sizeof(plinth_jit::parameters<plinth_jit::kernel>);

__attribute__((visibility("default"))) unsigned PLINTH_ENTRY(const void *memory, unsigned blocks, void *launch, plinth_jit::check usable) {
  plinth_jit::parameters<plinth_jit::kernel> given;
  memcpy(&given, memory, sizeof given);
  const unsigned code = plinth_jit::reachable(given.tensors, usable, launch);
  if (code != 0) return code;
  for (unsigned block = 0; block < blocks; block++) {
    for (unsigned lane = 0; lane < plinth_jit::THREADS; lane++) {
      plinth_jit::thread(given.tensors, given.values, block, lane);
    }
  }
  return 0;
}
}
#endif
