// Switches between stacks, for the threads of a block that wait for each other. A switch keeps what the machine's calling
// convention requires a function to keep: registers, and neither the signal mask nor the floating-point environment.
#pragma once

#include <stdint.h>

namespace plinth_host {
// The size and the alignment of a fiber's memory. Its first page cannot be accessed, and the rest is its stack, at whose
// end lies the state of the thread that it runs.
constexpr uintptr_t kFiberBytes = 1 << 20;

extern "C" __attribute__((visibility("hidden"))) void plinth_host_switch(void **from, void *to);

#if defined(__x86_64__)
asm(R"(
.text
.hidden plinth_host_switch
.globl plinth_host_switch
.type plinth_host_switch, @function
plinth_host_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size plinth_host_switch, . - plinth_host_switch
)");

// Returns the memory of the fiber that runs the caller.
static inline char *fiber_memory() {
  uintptr_t stack;
  asm("movq %%rsp, %0" : "=r"(stack));  // not volatile: one function runs in one fiber
  return reinterpret_cast<char *>(stack & ~(kFiberBytes - 1));
}

// Returns the stack pointer of a new fiber, whose stack ends at `end` and which runs `entry` when it is switched to.
static inline void *new_fiber(char *end, void (*entry)()) {
  void **stack = reinterpret_cast<void **>(end);
  *--stack = nullptr;  // where a return address lies when a function begins
  *--stack = reinterpret_cast<void *>(entry);
  for (int kept = 0; kept < 6; kept++) *--stack = nullptr;
  return stack;
}
#elif defined(__aarch64__)
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

static inline char *fiber_memory() {
  uintptr_t stack;
  asm("mov %0, sp" : "=r"(stack));
  return reinterpret_cast<char *>(stack & ~(kFiberBytes - 1));
}

static inline void *new_fiber(char *end, void (*entry)()) {
  void **stack = reinterpret_cast<void **>(end) - 20;
  for (int kept = 0; kept < 20; kept++) stack[kept] = nullptr;
  stack[11] = reinterpret_cast<void *>(entry);  // x30, where `ret` goes
  return stack;
}
#else
#error "kernels run on the host device of x86-64 and AArch64 machines only"
#endif
}  // namespace plinth_host
