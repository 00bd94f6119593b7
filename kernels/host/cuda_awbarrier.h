// Barriers with phases in shared memory.
#pragma once
#include <cuda_awbarrier_primitives.h>
