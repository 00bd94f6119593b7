// The collectives of group.cu for floats of 8 bits. A separate file, so that other kernels are loaded without decompressing it.
#include "group/collective.cuh"

PLINTH_GROUP(e4m3, plinth::Reduction<plinth::F8<plinth::E4m3>>)
PLINTH_GROUP(e5m2, plinth::Reduction<plinth::F8<plinth::E5m2>>)
