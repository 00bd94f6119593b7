//! The headers of CUDA C++ for the host device.

/// A file of `kernels/host/`, and its text.
macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../kernels/host/", $name)))
    };
}

/// The files of `kernels/host/` and their texts.
pub const HEADERS: &[(&str, &str)] = &[
    header!("assert.h"),
    header!("cooperative_groups.h"),
    header!("cooperative_groups/memcpy_async.h"),
    header!("cooperative_groups/reduce.h"),
    header!("cooperative_groups/scan.h"),
    header!("cub/cub.cuh"),
    header!("cuda/atomic"),
    header!("cuda/barrier"),
    header!("cuda/latch"),
    header!("cuda/pipeline"),
    header!("cuda/semaphore"),
    header!("cuda/std/algorithm"),
    header!("cuda/std/array"),
    header!("cuda/std/atomic"),
    header!("cuda/std/barrier"),
    header!("cuda/std/bit"),
    header!("cuda/std/bitset"),
    header!("cuda/std/cassert"),
    header!("cuda/std/cfloat"),
    header!("cuda/std/chrono"),
    header!("cuda/std/climits"),
    header!("cuda/std/cmath"),
    header!("cuda/std/complex"),
    header!("cuda/std/concepts"),
    header!("cuda/std/cstddef"),
    header!("cuda/std/cstdint"),
    header!("cuda/std/cstdlib"),
    header!("cuda/std/cstring"),
    header!("cuda/std/ctime"),
    header!("cuda/std/functional"),
    header!("cuda/std/initializer_list"),
    header!("cuda/std/iterator"),
    header!("cuda/std/latch"),
    header!("cuda/std/limits"),
    header!("cuda/std/memory"),
    header!("cuda/std/new"),
    header!("cuda/std/numeric"),
    header!("cuda/std/optional"),
    header!("cuda/std/ratio"),
    header!("cuda/std/semaphore"),
    header!("cuda/std/span"),
    header!("cuda/std/string_view"),
    header!("cuda/std/tuple"),
    header!("cuda/std/type_traits"),
    header!("cuda/std/utility"),
    header!("cuda/std/variant"),
    header!("cuda/std/version"),
    header!("cuda_awbarrier.h"),
    header!("cuda_awbarrier_primitives.h"),
    header!("cuda_bf16.h"),
    header!("cuda_fp16.h"),
    header!("cuda_fp8.h"),
    header!("cuda_pipeline.h"),
    header!("cuda_pipeline_primitives.h"),
    header!("cuda_runtime.h"),
    header!("cuda_runtime_api.h"),
    header!("cuda_texture_types.h"),
    header!("curand_kernel.h"),
    header!("device_functions.h"),
    header!("device_launch_parameters.h"),
    header!("device_types.h"),
    header!("math_constants.h"),
    header!("math_functions.h"),
    header!("mma.h"),
    header!("plinth_host/atomic.h"),
    header!("plinth_host/atomic_object.h"),
    header!("plinth_host/barrier_object.h"),
    header!("plinth_host/checks.h"),
    header!("plinth_host/entry.h"),
    header!("plinth_host/execution.h"),
    header!("plinth_host/fiber.h"),
    header!("plinth_host/fiber_state.h"),
    header!("plinth_host/group_values.h"),
    header!("plinth_host/half_functions.h"),
    header!("plinth_host/integer.h"),
    header!("plinth_host/integer_simd.h"),
    header!("plinth_host/kernel.h"),
    header!("plinth_host/launch.h"),
    header!("plinth_host/math.h"),
    header!("plinth_host/phase_barrier.h"),
    header!("plinth_host/qualifiers.h"),
    header!("plinth_host/rounding.h"),
    header!("plinth_host/small_float.h"),
    header!("plinth_host/standard.h"),
    header!("plinth_host/standard_begin.h"),
    header!("plinth_host/standard_end.h"),
    header!("plinth_host/thread_scope.h"),
    header!("plinth_host/unsupported.h"),
    header!("plinth_host/vector_types.h"),
    header!("plinth_host/warp.h"),
    header!("surface_functions.h"),
    header!("surface_indirect_functions.h"),
    header!("surface_types.h"),
    header!("texture_fetch_functions.h"),
    header!("texture_indirect_functions.h"),
    header!("texture_types.h"),
    header!("vector_functions.h"),
    header!("vector_types.h"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};

    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
    }

    #[test]
    fn every_file_is_there() {
        assert_eq!(HEADERS.len(), count(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/host")));
    }
}
