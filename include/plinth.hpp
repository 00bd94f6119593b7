/*!
 * @file plinth.hpp
 * @brief plinth for C++17: values for outputs, exceptions for errors, objects that give back what they took.
 *
 * A thin layer over plinth.h, in headers only. Every function here makes the calls of its namesakes there, whose
 * comments say what they mean; a status that is not PLINTH_OK becomes a plinth::Error. Destructors cannot throw, and
 * let an error of giving back go by. Where a stream may be left out, the thread's current stream is meant, as in torch.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_HPP
#define PLINTH_HPP

#include "plinth_callbacks.hpp"
#include "plinth_comm.hpp"
#include "plinth_communicator.hpp"
#include "plinth_core.hpp"
#include "plinth_graph.hpp"
#include "plinth_graph_build.hpp"
#include "plinth_host_memory.hpp"
#include "plinth_ipc.hpp"
#include "plinth_jit.hpp"
#include "plinth_libraries.hpp"
#include "plinth_memory.hpp"
#include "plinth_profile.hpp"
#include "plinth_random.hpp"
#include "plinth_sanitizer.hpp"
#include "plinth_tensor.hpp"

#endif /* PLINTH_HPP */
