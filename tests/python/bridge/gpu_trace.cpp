// Test of the notifications of torch.cuda._gpu_trace, which reach a Python interpreter through a table of functions.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "check.h"

#include <c10/core/SymIntArrayRef.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/GPUTrace.h>

namespace {

// Ends a function that the test must not reach.
#define UNREACHABLE { TORCH_CHECK(false, "unexpected call of ", __func__); }

std::vector<std::pair<bool, uintptr_t>> seen;

// A table that takes down what is allocated (true) and freed (false).
struct Interpreter final : c10::impl::PyInterpreterVTable {
  using Tensor = c10::TensorImpl;
  using Type = c10::DeviceType;

  void trace_gpu_memory_allocation(Type type, uintptr_t pointer) const override {
    EXPECT(type == Type::CUDA);
    seen.emplace_back(true, pointer);
  }
  void trace_gpu_memory_deallocation(Type type, uintptr_t pointer) const override {
    EXPECT(type == Type::CUDA);
    seen.emplace_back(false, pointer);
  }
  void trace_gpu_event_creation(Type, uintptr_t) const override {}
  void trace_gpu_event_deletion(Type, uintptr_t) const override {}
  void trace_gpu_event_record(Type, uintptr_t, uintptr_t) const override {}
  void trace_gpu_event_wait(Type, uintptr_t, uintptr_t) const override {}
  void trace_gpu_stream_creation(Type, uintptr_t) const override {}
  void trace_gpu_device_synchronization(Type) const override {}
  void trace_gpu_stream_synchronization(Type, uintptr_t) const override {}
  void trace_gpu_event_synchronization(Type, uintptr_t) const override {}

  std::string name() const override { return "test"; }
  void incref(PyObject*) const override UNREACHABLE
  void decref(PyObject*) const override UNREACHABLE
  bool try_incref(const c10::impl::PyObjectSlot&) const override UNREACHABLE
  size_t refcnt(PyObject*) const override UNREACHABLE
  c10::intrusive_ptr<Tensor> detach(const Tensor*) const override UNREACHABLE
  void dispatch(const c10::OperatorHandle&, torch::jit::Stack*) const override UNREACHABLE
  void reportErrorCallback(PyObject*, c10::DispatchKey) const override UNREACHABLE
  void python_op_registration_trampoline(const c10::OperatorHandle&, c10::DispatchKey, c10::DispatchKeySet,
                                         torch::jit::Stack*, bool, bool) const override UNREACHABLE
  void throw_abstract_impl_not_imported_error(std::string, const char*, const char*) const override UNREACHABLE
  void python_dispatcher(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) const override UNREACHABLE
  bool is_contiguous(const Tensor*, at::MemoryFormat) const override UNREACHABLE
  c10::SymBool sym_is_contiguous(const Tensor*, at::MemoryFormat) const override UNREACHABLE
  bool is_strides_like(const Tensor*, at::MemoryFormat) const override UNREACHABLE
  bool is_non_overlapping_and_dense(const Tensor*) const override UNREACHABLE
  c10::Device device(const Tensor*) const override UNREACHABLE
  int64_t dim(const Tensor*) const override UNREACHABLE
  c10::IntArrayRef strides(const Tensor*) const override UNREACHABLE
  c10::IntArrayRef sizes(const Tensor*) const override UNREACHABLE
  c10::SymIntArrayRef sym_sizes(const Tensor*) const override UNREACHABLE
  c10::Layout layout(const Tensor*) const override UNREACHABLE
  int64_t numel(const Tensor*) const override UNREACHABLE
  c10::SymInt sym_numel(const Tensor*) const override UNREACHABLE
  c10::SymIntArrayRef sym_strides(const Tensor*) const override UNREACHABLE
  c10::SymInt sym_storage_offset(const Tensor*) const override UNREACHABLE
  void reset_backward_hooks(const Tensor*) const override UNREACHABLE
};

}  // namespace

void test_gpu_trace() {
  static const Interpreter table;
  static const c10::impl::PyInterpreter interpreter(&table);
  c10::impl::GPUTrace::set_trace(&interpreter);
  auto* allocator = caching::get();
  auto block = allocator->allocate(1000);
  const auto first = reinterpret_cast<uintptr_t>(block.get());
  block.clear();
  allocator->allocate(0);
  void* raw = allocator->raw_alloc(5000);
  const auto second = reinterpret_cast<uintptr_t>(raw);
  allocator->raw_delete(raw);
  EXPECT((seen == std::vector<std::pair<bool, uintptr_t>>{{true, first}, {false, first}, {true, second}, {false, second}}));
}
