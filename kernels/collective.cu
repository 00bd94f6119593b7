// Collectives over devices that can reach each other's memory: one launch on one device reads all sources and writes all
// destinations, wherever they are. A table of segments, an argument of the launch, describes the work.
//
// Nothing here may be read through caches that do not see what is written (ld.global.nc): a destination may be a source.
#include "collective.cuh"

extern "C" __global__ void __launch_bounds__(plinth::kThreads) plinth_comm_copy(const __grid_constant__ plinth::Table table) {
  plinth::copy(table);
}

extern "C" __global__ void __launch_bounds__(plinth::kThreads) plinth_comm_strided(const __grid_constant__ plinth::Table table) {
  switch (table.width) {
    case 16: plinth::copy_strided<uint4>(table); break;
    case 8: plinth::copy_strided<plinth::u64>(table); break;
    case 4: plinth::copy_strided<plinth::u32>(table); break;
    case 2: plinth::copy_strided<plinth::u16>(table); break;
    default: plinth::copy_strided<plinth::u8>(table); break;
  }
}

// A kernel of its own, because it needs more registers.
extern "C" __global__ void __launch_bounds__(plinth::kThreads) plinth_comm_convert(const __grid_constant__ plinth::Table table) {
  plinth::copy_converted(table);
}

PLINTH_REDUCE(f16, plinth::Half)
PLINTH_REDUCE(bf16, plinth::Bfloat)
PLINTH_REDUCE(f32, plinth::Float<float>)
PLINTH_REDUCE(f64, plinth::Float<double>)
PLINTH_REDUCE(b8, plinth::Integer<uint8_t, int8_t, uint32_t>)
PLINTH_REDUCE(b16, plinth::Integer<uint16_t, int16_t, uint32_t>)
PLINTH_REDUCE(b32, plinth::Integer<uint32_t, int32_t, uint32_t>)
PLINTH_REDUCE(b64, plinth::Integer<uint64_t, int64_t, uint64_t>)
PLINTH_REDUCE(bool, plinth::Bool)
