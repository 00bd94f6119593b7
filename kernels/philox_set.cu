// A kernel that sets where a replay of a graph begins in a generator's sequence.
//

// Writes the seed and the offset of a replay where the graph's nodes will read them.
extern "C" __global__ void plinth_philox_set(unsigned long long *place, unsigned long long seed,
                                             unsigned long long offset) {
  place[0] = seed;
  place[1] = offset;
}
