// Hostile DLPack tensors for every call that takes tensors.
//
// A tensor that a call can accept lies in memory of this program, because no library can know the bounds of memory that a
// caller describes. All others are wrong in a way that the call must detect: they are refused, or have no elements.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hostile.h"

namespace {

constexpr int MOST_TENSORS = 4, MOST_DIMENSIONS = 32;

struct Tensor {
  DLTensor dl;
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
};

Tensor tensors[MOST_TENSORS];
plinth_jit_function_t jit_function;
plinth_generator_t generators[DEVICES];

// Returns the bytes of an element; 0 for a type that no call accepts. Copies accept any type of these sizes.
size_t element_bytes(const DLDataType &type) {
  const unsigned bits = static_cast<unsigned>(type.bits) * type.lanes;
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

// Whether a tensor is wrong in a way that every call detects before it uses elements.
bool is_refused(const Tensor &tensor) {
  const DLTensor &dl = tensor.dl;
  const int32_t type = dl.device.device_type;
  if (element_bytes(dl.dtype) == 0 || dl.ndim < 0 || dl.ndim > 25 || (dl.ndim > 0 && dl.shape == nullptr)) {
    return true;
  }
  unsigned __int128 bytes = element_bytes(dl.dtype);
  bool is_empty = false, is_huge = false;
  for (int32_t index = 0; index < dl.ndim; index++) {
    if (tensor.shape[index] < 0) {
      return true;
    }
    is_empty |= tensor.shape[index] == 0;
    if (!is_huge) {
      bytes *= static_cast<uint64_t>(tensor.shape[index]);
      is_huge = bytes >> 63 != 0;
    }
  }
  return is_empty || is_huge || (type != 1 && type != 2 && type != 3 && type != 13) ||
         (type == 2 && (dl.device.device_id < 0 || dl.device.device_id >= DEVICES));
}

// Whether all elements lie in the memory that the tensor was made in.
bool lies_in(const Tensor &tensor, const Memory &memory) {
  __int128 low = reinterpret_cast<uintptr_t>(tensor.dl.data), stride = 1;
  low += tensor.dl.byte_offset;
  const auto size = static_cast<__int128>(element_bytes(tensor.dl.dtype));
  __int128 high = low + size;
  for (int32_t index = tensor.dl.ndim; index-- > 0;) {
    const __int128 step = tensor.dl.strides != nullptr ? tensor.strides[index] : stride;
    const __int128 reach = step * (tensor.shape[index] - 1) * size;
    (reach < 0 ? low : high) += reach;
    stride *= tensor.shape[index];
    if (high - low > static_cast<__int128>(BLOCK)) {
      return false;
    }
  }
  const auto begin = static_cast<__int128>(reinterpret_cast<uintptr_t>(memory.begin));
  return low >= begin && high <= begin + static_cast<__int128>(BLOCK);
}

int64_t extent(Reader &in) {
  const unsigned choice = in.byte();
  return choice % 16 == 0 ? static_cast<int64_t>(in.number()) : choice % 16 == 1 ? 0 : 1 + choice / 16 % 9;
}

void make_tensor(Reader &in, Tensor &tensor, const Tensor *like) {
  static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {2, 64, 1}, {4, 16, 1}, {0, 32, 1},  {0, 64, 1},
                                     {0, 8, 1},  {1, 8, 1},  {6, 8, 1},  {5, 64, 1}, {5, 128, 1}, {0, 16, 1}};
  const Memory &memory = memories[in.byte() % memories.size()];
  DLTensor &dl = tensor.dl;
  dl = DLTensor();
  dl.data = memory.begin + (in.one_in(3) ? in.word() % BLOCK : in.byte() % 16 * 256);
  dl.device = memory.dl_device();
  dl.dtype = types[in.byte() % (sizeof types / sizeof types[0])];
  dl.shape = tensor.shape;
  const unsigned rank = in.byte();
  dl.ndim = static_cast<int32_t>(rank % 32 == 0 ? in.number() : rank % 32 == 1 ? in.byte() % 30 : rank % 5);
  for (int32_t index = 0; index < MOST_DIMENSIONS; index++) {
    tensor.shape[index] = index < dl.ndim && index < 6 ? extent(in) : 1;
    tensor.strides[index] = 1;
  }
  if (like != nullptr && !in.one_in(4)) {
    dl.ndim = like->dl.ndim;
    dl.dtype = in.one_in(4) ? dl.dtype : like->dl.dtype;
    memcpy(tensor.shape, like->shape, sizeof tensor.shape);
  }
  if (in.one_in(2)) {
    dl.strides = tensor.strides;
    uint64_t stride = 1;
    for (int32_t index = std::min(dl.ndim, 25); index-- > 0;) {
      tensor.strides[index] = static_cast<int64_t>(stride);
      stride *= static_cast<uint64_t>(tensor.shape[index]);
      const unsigned choice = in.byte();
      if (choice % 8 == 0) {
        tensor.strides[index] = choice % 3 == 0 ? static_cast<int64_t>(in.number()) : static_cast<int64_t>(choice / 8) - 8;
      }
    }
  }
  switch (in.byte() % 16) {
    case 0: dl.dtype.code = static_cast<uint8_t>(in.byte() % 20); break;
    case 1: dl.dtype.bits = static_cast<uint8_t>(in.number()); break;
    case 2: dl.dtype.lanes = static_cast<uint16_t>(in.number()); break;
    case 3: dl.byte_offset = in.number(); break;
    case 4: dl.device.device_type = static_cast<decltype(dl.device.device_type)>(in.number()); break;
    case 5: dl.device.device_id = in.device(); break;
    case 6: dl.data = in.one_in(2) ? nullptr : reinterpret_cast<void *>(in.number()); break;
    case 7: dl.shape = nullptr; break;
    default: break;
  }
  if (is_refused(tensor)) {
    return;
  }
  const bool is_own = dl.device.device_type == memory.device_type && dl.device.device_id == memory.device;
  if (!is_own || (dl.data != nullptr && !lies_in(tensor, memory))) {
    // Nothing can detect this. Without elements, nothing uses the memory either.
    if (dl.ndim == 0) {
      dl.ndim = 1;
      dl.shape = tensor.shape;
    }
    tensor.shape[0] = 0;
  }
}

// Frees an output that a call created, because the caller passed none.
void free_created(Tensor &tensor, const void *before) {
  if (tensor.dl.data != before) {
    // A part on the tensor's own device is a view of it; then this fails.
    EXPECT(plinth_caching_allocator_delete(tensor.dl.data));
  }
}

void note_tensor(const char *name, const Tensor &tensor) {
  const DLTensor &dl = tensor.dl;
  std::string layout;
  for (int32_t index = 0; index < dl.ndim && index < 5; index++) {
    layout += " " + std::to_string(tensor.shape[index]);
    layout += dl.strides != nullptr ? "/" + std::to_string(tensor.strides[index]) : "";
  }
  note("  %s: %p + %llu, device %d of type %d, %u.%u.%u, %d dimensions:%s", name, dl.data,
       static_cast<unsigned long long>(dl.byte_offset), dl.device.device_id, static_cast<int>(dl.device.device_type),
       dl.dtype.code, dl.dtype.bits, dl.dtype.lanes, dl.ndim, layout.c_str());
}

void call_with_list(Reader &in) {
  const size_t count = in.one_in(16) ? 0 : 1 + in.byte() % 3;
  DLTensor list[MOST_TENSORS], outputs[MOST_TENSORS];
  void *before[MOST_TENSORS];
  int64_t sizes[MOST_TENSORS];
  int32_t devices[MOST_TENSORS];
  plinth_stream_t streams[MOST_TENSORS] = {};
  for (int index = 0; index < MOST_TENSORS; index++) {
    make_tensor(in, tensors[index], index == 0 ? nullptr : &tensors[0]);
    list[index] = outputs[index] = tensors[index].dl;
    sizes[index] = extent(in);
    devices[index] = in.device();
  }
  // Outputs have other memory than inputs, or the call creates them.
  static Tensor others[MOST_TENSORS];
  const bool creates = in.one_in(3);
  for (int index = 0; index < MOST_TENSORS; index++) {
    make_tensor(in, others[index], &tensors[0]);
    if (creates) {
      others[index].dl.data = nullptr;
      others[index].dl.shape = others[index].shape;
      others[index].dl.strides = others[index].strides;
      others[index].dl.ndim = MOST_DIMENSIONS - in.byte() % 8;
      others[index].dl.device = memories[in.byte() % (2 * DEVICES)].dl_device();
    }
    outputs[index] = others[index].dl;
    before[index] = outputs[index].data;
  }
  const DLTensor *first = in.one_in(32) ? nullptr : list;
  DLTensor *out = in.one_in(32) ? nullptr : outputs;
  const int32_t dim = in.one_in(4) ? static_cast<int32_t>(in.number()) : in.byte() % 3;
  bool available = false;
  const unsigned call = in.byte() % 7;
  note("collective %u of %zu tensors%s", call, count, creates ? ", which creates its outputs" : "");
  if (verbose) {
    for (size_t index = 0; index < std::max<size_t>(count, 1); index++) {
      note_tensor("input", tensors[index]);
      note_tensor("output", others[index]);
    }
  }
  plinth_status_t status = PLINTH_OK;
  switch (call) {
    case 0: status = EXPECT(plinth_comm_broadcast(first, out, count)); break;
    case 1:
      status = EXPECT(plinth_comm_broadcast_coalesced(first, count, devices, 1, in.number(), out));
      break;
    case 2: status = EXPECT(plinth_comm_reduce_add(first, count, out)); break;
    case 3: status = EXPECT(plinth_comm_reduce_add_coalesced(first, count, 1, in.number(), out)); break;
    case 4:
      status = EXPECT(plinth_comm_scatter(first, out, count, in.one_in(2) ? sizes : nullptr, dim,
                                          in.one_in(2) ? streams : nullptr));
      break;
    case 5: status = EXPECT(plinth_comm_gather(first, count, dim, out)); break;
    default: EXPECT(plinth_nccl_is_available(first, count, &available));
  }
  if (status == PLINTH_OK && out != nullptr) {
    for (int index = 0; index < MOST_TENSORS; index++) {
      others[index].dl = outputs[index];
      free_created(others[index], before[index]);
    }
  }
  last_status = status;
}

void one_tensor(Reader &in) {
  const unsigned call = in.byte() % 24;
  if (call >= 18) {
    call_with_list(in);
    return;
  }
  make_tensor(in, tensors[0], nullptr);
  make_tensor(in, tensors[1], &tensors[0]);
  DLTensor *tensor = in.one_in(64) ? nullptr : &tensors[0].dl;
  DLTensor *other = in.one_in(64) ? nullptr : &tensors[1].dl;
  const int32_t device = tensors[0].dl.device.device_id;
  const plinth_generator_t generator =
      in.one_in(8) ? generators[in.byte() % DEVICES] : device >= 0 && device < DEVICES ? generators[device] : nullptr;
  const plinth_stream_t stream = in.one_in(8) ? PLINTH_STREAM_DEFAULT_OF(in.device()) : nullptr;
  const double one = in.real(), two = in.real();
  note("call %u with tensors", call);
  if (verbose) {
    note_tensor("one", tensors[0]);
    note_tensor("other", tensors[1]);
  }
  switch (call) {
    case 0: EXPECT(plinth_uniform(tensor, one, two, generator, stream)); break;
    case 1: EXPECT(plinth_normal(tensor, one, two, generator, stream)); break;
    case 2: EXPECT(plinth_log_normal(tensor, one, two, generator, stream)); break;
    case 3: EXPECT(plinth_exponential(tensor, one, generator, stream)); break;
    case 4: EXPECT(plinth_cauchy(tensor, one, two, generator, stream)); break;
    case 5: EXPECT(plinth_geometric(tensor, one, generator, stream)); break;
    case 6: EXPECT(plinth_bernoulli(tensor, one, generator, stream)); break;
    case 7: EXPECT(plinth_bernoulli_tensor(tensor, other, generator, stream)); break;
    case 8: EXPECT(plinth_random(tensor, generator, stream)); break;
    case 9:
      EXPECT(plinth_random_range(tensor, extent(in), static_cast<int64_t>(in.number()), generator, stream));
      break;
    case 10: EXPECT(plinth_randperm(tensor, generator, stream)); break;
    case 11:
    case 12:
    case 13:
    case 14: EXPECT(plinth_copy_tensor(tensor, other, in.one_in(2))); break;
    case 15:
    case 16: {
      const DLTensor *inputs[] = {tensor, other, tensor};
      DLDataType type;
      int32_t rank = 0;
      int64_t shape[25];
      EXPECT(plinth_jiterator_result(jit_function, in.one_in(32) ? nullptr : inputs, in.one_in(8) ? in.byte() % 4 : 2, &type,
                                     &rank, shape));
      break;
    }
    default: {
      // A valid call would compile for each combination of types, so the number of inputs is wrong.
      const DLTensor *inputs[] = {tensor, other, tensor};
      DLTensor *results[] = {tensor, other};
      expect_failure(__LINE__, plinth_jiterator_call(jit_function, inputs, 3, results, in.byte() % 3, nullptr, 0, stream),
                     "plinth_jiterator_call");
    }
  }
}

}  // namespace
