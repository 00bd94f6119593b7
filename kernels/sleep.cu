// A kernel that keeps its stream busy.
//

// Keeps one thread, and with it its stream, busy for `cycles` clock cycles of the multiprocessor.
extern "C" __global__ void plinth_sleep(unsigned long long cycles) {
  const long long start = clock64();
  while (static_cast<unsigned long long>(clock64() - start) < cycles) {
  }
}
