// The reductions of collective.cu for floats of 8 bits. A separate file, so that other kernels are loaded without decompressing it.
#include "collective.cuh"

PLINTH_REDUCE(e4m3, plinth::F8<plinth::E4m3>)
PLINTH_REDUCE(e5m2, plinth::F8<plinth::E5m2>)
