/*!
 * @file plinth.hpp
 * @brief plinth for C++17: return values for outputs, exceptions for errors, RAII for resources.
 *
 * A thin, header-only layer over plinth.h. Every function calls the C function of the same name, which is documented
 * there; a status other than PLINTH_OK is thrown as a plinth::Error. Destructors cannot throw: they ignore errors of
 * the release. A stream argument that is left out is the thread's current stream, as in torch.
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
#include "plinth_memory_share.hpp"
#include "plinth_memory_sleep.hpp"
#include "plinth_registration.hpp"
#include "plinth_profile.hpp"
#include "plinth_random.hpp"
#include "plinth_sanitizer.hpp"
#include "plinth_tensor.hpp"

#endif /* PLINTH_HPP */
