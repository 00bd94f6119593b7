// Copies of one thread to shared memory.
#pragma once
#include <cuda_pipeline_primitives.h>
