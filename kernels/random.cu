// The kernels that fill tensors with random numbers. docs/random.md says which number each element gets.
#include "random/bernoulli.cuh"
#include "random/integers.cuh"
#include "random/inverse.cuh"
#include "random/normal.cuh"
#include "random/uniform.cuh"

using namespace plinth;

// Advances the offset of a graph's replay for the next one, after the nodes that read it.
extern "C" __global__ void plinth_advance_offset(u64 *offset, u64 used) { *offset += used; }

PLINTH_DENSE(plinth_standard_uniform_f32, Uniformly<StandardUniform>)
PLINTH_DENSE(plinth_uniform_f32, Uniformly<Uniform<float>>)
PLINTH_DENSE(plinth_uniform_f64, Uniformly<Uniform<double>>)
PLINTH_ANY(plinth_uniform_any, Uniformly<RoundedUniform>)
PLINTH_ANY(plinth_uniform_any_f64, Uniformly<Uniform<double>>)

PLINTH_DENSE(plinth_standard_normal_f32, Normally<StandardNormal>)
PLINTH_DENSE(plinth_normal_f32, Normally<Normal<float>>)
PLINTH_DENSE(plinth_normal_f64, Normally<Normal<double>>)
PLINTH_ANY(plinth_normal_any, Normally<Normal<float>>)
PLINTH_ANY(plinth_normal_any_f64, Normally<Normal<double>>)

PLINTH_DENSE(plinth_log_normal_f32, Normally<LogNormal<float>>)
PLINTH_DENSE(plinth_log_normal_f64, Normally<LogNormal<double>>)
PLINTH_ANY(plinth_log_normal_any, Normally<LogNormal<float>>)
PLINTH_ANY(plinth_log_normal_any_f64, Normally<LogNormal<double>>)

PLINTH_DENSE(plinth_exponential_f32, Uniformly<Exponential<float>>)
PLINTH_DENSE(plinth_exponential_f64, Uniformly<Exponential<double>>)
PLINTH_ANY(plinth_exponential_any, Uniformly<Exponential<float>>)
PLINTH_ANY(plinth_exponential_any_f64, Uniformly<Exponential<double>>)

PLINTH_DENSE(plinth_cauchy_f32, Uniformly<Cauchy<float>>)
PLINTH_DENSE(plinth_cauchy_f64, Uniformly<Cauchy<double>>)
PLINTH_ANY(plinth_cauchy_any, Uniformly<Cauchy<float>>)
PLINTH_ANY(plinth_cauchy_any_f64, Uniformly<Cauchy<double>>)

PLINTH_DENSE(plinth_geometric_f32, Uniformly<Geometric<float>>)
PLINTH_DENSE(plinth_geometric_f64, Uniformly<Geometric<double>>)
PLINTH_DENSE(plinth_geometric_i32, Uniformly<Geometric<int, float>>)
PLINTH_DENSE(plinth_geometric_i64, Uniformly<Geometric<i64, float>>)
PLINTH_ANY(plinth_geometric_any, Uniformly<Geometric<float>>)
PLINTH_ANY(plinth_geometric_any_f64, Uniformly<Geometric<double>>)

PLINTH_DENSE(plinth_bernoulli_b8, Bernoulli<u8>)
PLINTH_DENSE(plinth_bernoulli_b16, Bernoulli<u16>)
PLINTH_DENSE(plinth_bernoulli_b32, Bernoulli<u32>)
PLINTH_DENSE(plinth_bernoulli_b64, Bernoulli<u64>)
PLINTH_DENSE(plinth_bernoulli_f64, Bernoulli53)
PLINTH_ANY(plinth_bernoulli_any, Bernoulli<i64>)
PLINTH_ANY(plinth_bernoulli_any_f64, Bernoulli53)
PLINTH_EACH(plinth_bernoulli_each_b8, bernoulli_each<u8, false>)
PLINTH_EACH(plinth_bernoulli_each_b16, bernoulli_each<u16, false>)
PLINTH_EACH(plinth_bernoulli_each_b32, bernoulli_each<u32, false>)
PLINTH_EACH(plinth_bernoulli_each_b64, bernoulli_each<u64, false>)
PLINTH_EACH(plinth_bernoulli_each_f64, bernoulli_each<u64, true>)

PLINTH_DENSE(plinth_integers_b8, Integers<u8>)
PLINTH_DENSE(plinth_integers_b16, Integers<u16>)
PLINTH_DENSE(plinth_integers_b32, Integers<u32>)
PLINTH_DENSE(plinth_integers_b64, Integers<i64>)
PLINTH_ANY(plinth_integers_any, Integers<i64>)
PLINTH_DENSE(plinth_integers64_b32, Integers64<u32>)
PLINTH_DENSE(plinth_integers64_b64, Integers64<u64>)
PLINTH_ANY(plinth_integers64_any, Integers64<i64>)
