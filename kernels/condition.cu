// A kernel that sets the condition of a conditional node of a graph.
//

// The driver's: known to it by this name, and to no library that would have to be linked.
extern "C" __device__ void cudaGraphSetConditional(unsigned long long condition, unsigned value);

// Gives a condition the value that is in memory now.
extern "C" __global__ void plinth_condition_set(unsigned long long condition, const unsigned *value) {
  cudaGraphSetConditional(condition, *value);
}
