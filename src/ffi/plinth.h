/*!
 * @mainpage plinth: torch.cuda without libtorch
 *
 * plinth gives a C or C++ program devices, streams, events, graphs and memory of NVIDIA GPUs, as torch.cuda gives them
 * to a Python program. It also has a device of its own, the host device, for machines without a GPU.
 *
 * torch.cuda.X.y(...) is plinth_X_y(...). These rules hold for every function, unless its comment says otherwise:
 *
 * - **Status.** A function returns a plinth_status_t: PLINTH_OK, or one of the PLINTH_ERROR_ constants.
 *   plinth_last_error() returns a sentence that says what was attempted and why it failed; plinth_last_driver_error()
 *   returns the driver's own code.
 * - **Arguments.** The order is: the object or device that the call is about, inputs, options, the stream, outputs.
 *   Outputs are written only on success. An array stands before its count or capacity. A device of -1 is the calling
 *   thread's current device. A NULL stream is the default stream of the device that the call is about, and
 *   PLINTH_STREAM_CURRENT the current stream there; see plinth_stream_t. Sizes are in bytes unless the comment
 *   says elements.
 * - **Threads.** Every function may be called from any thread at any time, with one exception: do not destroy an object
 *   while another thread is in a call with it. The current device, the current streams and the last error belong to
 *   the calling thread. Callbacks must not unwind or throw. A call of a signal handler that interrupted another call of
 *   its thread returns PLINTH_ERROR_NOT_SUPPORTED, and does nothing; this holds for frees, too. A thread that is
 *   cancelled during a call completes it first; a thread with PTHREAD_CANCEL_ASYNCHRONOUS must not make calls.
 * - **Callbacks.** The type of a callback ends in `_callback_t`. Its `void *context` follows it in the call, and is its
 *   own last parameter. What it receives is valid until it returns.
 * - **Ownership.** The caller owns what a function creates, allocates or opens. An object of type plinth_x_t is released
 *   with plinth_x_destroy, memory with free, what was opened with close. A text in a `char **` output belongs to the
 *   caller, who frees it with plinth_string_free; a `const char *` belongs to the library.
 * - **Structs.** A struct that may grow begins with `struct_size`, the struct's size, which its `_INIT` macro sets. New
 *   fields are added at the end. The library gives fields that the program's struct lacks the values of `_INIT`, and
 *   writes no more bytes than `struct_size`. It refuses inputs with unknown fields that are not 0. All elements of an
 *   array have the `struct_size` of the first.
 * - **Values.** A value with a setter is read by get_x and set by set_x; one without a setter is read by x.
 * - **Process.** The library initializes itself when a device is first used. It prints nothing and never ends the
 *   process. In a child that is forked later, calls that destroy or free do nothing and succeed, and all others return
 *   PLINTH_ERROR_FORKED_CHILD, except those about versions, statuses and messages; docs/errors.md lists them.
 *
 * plinth.h includes every header below. Each of them may also be included alone, in C99 or later and C++11 or later.
 *
 * @CONTENTS@
 *
 * plinth.hpp is the same for C++17, with exceptions and owning objects. plinth_philox.h and plinth_philox.cuh make random
 * numbers in the program's own kernels; no header here includes them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

@GENERATED@

#ifndef PLINTH_H
#define PLINTH_H

/*!
 * @file plinth.h
 * @brief All of plinth for C: includes every header of the folder plinth.
 */

@INCLUDES@

#endif /* PLINTH_H */
