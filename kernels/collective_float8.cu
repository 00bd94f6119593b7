// The reductions of collective.cu for floating point in 8 bits: a module of its own, which is loaded by those who need it.
#include "collective.cuh"

PLINTH_REDUCE(e4m3, plinth::F8<plinth::E4m3>)
PLINTH_REDUCE(e5m2, plinth::F8<plinth::E5m2>)
