// Switches between stacks, for the threads of a block that wait for each other. A switch keeps what the machine's calling
// convention requires a function to keep: registers, and neither the signal mask nor the floating-point environment.
#pragma once

#include "integer_types.h"

namespace plinth_host {
// The size and the alignment of a fiber's memory. Its first page cannot be accessed, and the rest is its stack, at whose
// end lies the state of the thread that it runs.
constexpr uintptr_t kFiberBytes = 1 << 20;
// How far from the end of the memory the state may begin.
constexpr uintptr_t kStateBytes = 132 << 10;

#if defined(__x86_64__)
// Where a fiber goes on.
struct Context {
  void *stack;
  void *instruction;
  void *frame;
  void *base;
};

// The registers that only some processors have, which a function need not keep.
#ifdef __AVX512F__
#define PLINTH_HOST_MORE_REGISTERS                                                                                  \
  , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",     \
      "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define PLINTH_HOST_MORE_REGISTERS
#endif

// Leaves this fiber, and returns when another one switches back to it. It is a part of its caller and names the registers
// that it changes, so that the compiler saves only those which are in use there. It saves rbp and rbx itself, with which a
// compiler may address its frame. It does not push: there may be variables below the stack pointer.
static __attribute__((always_inline)) inline void switch_context(Context &from, const Context &to) {
  Context *saved = &from;
  const Context *next = &to;
  asm volatile(R"(
    leaq 1f(%%rip), %%rax
    movq %%rsp, (%0)
    movq %%rax, 8(%0)
    movq %%rbp, 16(%0)
    movq %%rbx, 24(%0)
    movq (%1), %%rsp
    movq 16(%1), %%rbp
    movq 24(%1), %%rbx
    jmpq *8(%1)
  1:
  )"
               : "+D"(saved), "+S"(next)
               :
               : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2",
                 "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                 "xmm15", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)", "cc",
                 "memory" PLINTH_HOST_MORE_REGISTERS);
}
#undef PLINTH_HOST_MORE_REGISTERS

static inline uintptr_t stack_pointer() {
  uintptr_t stack;
  asm("movq %%rsp, %0" : "=r"(stack));  // not volatile: one function runs in one fiber
  return stack;
}

// Returns the context of a new fiber, whose stack ends at `end` and which runs `entry` when it is switched to.
static inline Context new_context(char *end, void (*entry)()) {
  void **stack = reinterpret_cast<void **>(end);
  *--stack = nullptr;  // where a return address lies when a function begins
  return {stack, reinterpret_cast<void *>(entry), nullptr, nullptr};
}
#elif defined(__aarch64__)
// Where a fiber goes on: its registers are on its stack.
struct Context {
  void *stack;
};

extern "C" __attribute__((visibility("hidden"))) void plinth_host_switch(void **from, void *to);
asm(R"(
.text
.hidden plinth_host_switch
.globl plinth_host_switch
.type plinth_host_switch, %function
plinth_host_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size plinth_host_switch, . - plinth_host_switch
)");

static inline void switch_context(Context &from, const Context &to) { plinth_host_switch(&from.stack, to.stack); }

static inline uintptr_t stack_pointer() {
  uintptr_t stack;
  asm("mov %0, sp" : "=r"(stack));
  return stack;
}

static inline Context new_context(char *end, void (*entry)()) {
  void **stack = reinterpret_cast<void **>(end) - 20;
  for (int kept = 0; kept < 20; kept++) stack[kept] = nullptr;
  stack[11] = reinterpret_cast<void *>(entry);  // x30, where `ret` goes
  return {stack};
}
#else
#error "kernels run on the host device of x86-64 and AArch64 machines only"
#endif

// Returns the memory of the fiber that runs the caller.
static inline char *fiber_memory() { return reinterpret_cast<char *>(stack_pointer() & ~(kFiberBytes - 1)); }
}  // namespace plinth_host
