// The types of the runtime API that declarations beside a kernel may name. Device code on the host device cannot call
// the runtime.
#pragma once
#include "device_types.h"
#include "vector_types.h"

enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorUnknown = 999 };
typedef enum cudaError cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
