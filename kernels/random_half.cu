// The kernels that fill tensors of 16-bit floats, for devices from compute capability 8.0 on.
#include "random/half.cuh"

using namespace plinth;

PLINTH_HALF(plinth_standard_uniform_f16, F16, Uniformly<HalfUniform<F16, true>>)
PLINTH_HALF(plinth_uniform_f16, F16, Uniformly<HalfUniform<F16, false>>)
PLINTH_HALF(plinth_standard_uniform_bf16, Bf16, Uniformly<HalfUniform<Bf16, true>>)
PLINTH_HALF(plinth_uniform_bf16, Bf16, Uniformly<HalfUniform<Bf16, false>>)
PLINTH_HALF(plinth_standard_normal_f16, F16, Normally<StandardNormal>)
PLINTH_HALF(plinth_normal_f16, F16, Normally<Normal<float>>)
PLINTH_HALF(plinth_standard_normal_bf16, Bf16, Normally<StandardNormal>)
PLINTH_HALF(plinth_normal_bf16, Bf16, Normally<Normal<float>>)
PLINTH_HALF(plinth_log_normal_f16, F16, Normally<LogNormal<float>>)
PLINTH_HALF(plinth_log_normal_bf16, Bf16, Normally<LogNormal<float>>)
PLINTH_HALF(plinth_exponential_f16, F16, Uniformly<Exponential<float>>)
PLINTH_HALF(plinth_exponential_bf16, Bf16, Uniformly<Exponential<float>>)
PLINTH_HALF(plinth_cauchy_f16, F16, Uniformly<Cauchy<float>>)
PLINTH_HALF(plinth_cauchy_bf16, Bf16, Uniformly<Cauchy<float>>)
PLINTH_HALF(plinth_geometric_f16, F16, Uniformly<Geometric<float>>)
PLINTH_HALF(plinth_geometric_bf16, Bf16, Uniformly<Geometric<float>>)
