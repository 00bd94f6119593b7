// threadIdx, blockIdx, blockDim, gridDim and warpSize need no header; this one exists because sources include it.
#pragma once
#include "vector_types.h"
