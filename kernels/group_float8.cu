// The collectives of group.cu for floating point in 8 bits: a module of its own, which is loaded by those who need it.
#include "group/collective.cuh"

PLINTH_GROUP(e4m3, plinth::Reduction<plinth::F8<plinth::E4m3>>)
PLINTH_GROUP(e5m2, plinth::Reduction<plinth::F8<plinth::E5m2>>)
