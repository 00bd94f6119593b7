// The library's own kernels.
//
// They are compiled to PTX by `make kernels`; kernels/plinth.ptx is what the pinned compiler makes of this file, is
// checked in, and is embedded in the library. The host device has a twin of each, by the same name.

// Keeps one thread, and with it its stream, busy for `cycles` clock cycles of the multiprocessor.
extern "C" __global__ void plinth_sleep(unsigned long long cycles) {
  const long long start = clock64();
  while (static_cast<unsigned long long>(clock64() - start) < cycles) {
  }
}
