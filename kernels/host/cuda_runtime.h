// What device code finds in CUDA's header of this name.
#pragma once
#include "cuda_runtime_api.h"
#include "device_functions.h"
#include "device_launch_parameters.h"
#include "math_functions.h"
#include "vector_functions.h"
