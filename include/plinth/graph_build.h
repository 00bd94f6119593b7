/*!
 * @defgroup plinth_graph_build Graphs built by hand
 *
 * Adds nodes to a graph one by one, instead of capturing them, and reads and changes the nodes of a graph.
 *
 * A node belongs to its graph and lives as long as it. Memory and contexts that a node uses are the program's, and
 * must stay valid as long as the graph may run. Calls for one graph wait for each other.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_GRAPH_BUILD_H
#define PLINTH_GRAPH_BUILD_H

#include "base.h"
#include "stream.h"
#include "event.h"
#include "graph.h"

/*!
 * @file plinth/graph_build.h
 * @brief Graphs built by hand.
 */

/*!
 * @addtogroup plinth_graph_build
 * @{
 */

/**
 * A node that launches a kernel.
 */
#define PLINTH_GRAPH_NODE_KERNEL 0

/**
 * A node that copies memory.
 */
#define PLINTH_GRAPH_NODE_MEMCPY 1

/**
 * A node that fills memory.
 */
#define PLINTH_GRAPH_NODE_MEMSET 2

/**
 * A node that calls a function on the CPU.
 */
#define PLINTH_GRAPH_NODE_HOST 3

/**
 * A node that contains a child graph.
 */
#define PLINTH_GRAPH_NODE_GRAPH 4

/**
 * A node that does nothing but wait for its dependencies.
 */
#define PLINTH_GRAPH_NODE_EMPTY 5

/**
 * A node that waits for an event.
 */
#define PLINTH_GRAPH_NODE_WAIT_EVENT 6

/**
 * A node that records an event.
 */
#define PLINTH_GRAPH_NODE_EVENT_RECORD 7

/**
 * A conditional node.
 */
#define PLINTH_GRAPH_NODE_CONDITIONAL 13

/**
 * The launch of a kernel. PLINTH_GRAPH_KERNEL_INIT is one block of one thread.
 */
typedef struct plinth_graph_kernel_t {
  /**
   * sizeof(plinth_graph_kernel_t) in the caller's version of the header.
   */
  size_t struct_size;
  /**
   * The kernel: a CUfunction or a cudaFunction_t, which are the same. It must stay loaded as long as the graph
   * contains it, in the primary context of the graph's device.
   */
  void *function;
  /**
   * The number of blocks in the grid, along x, y and z.
   */
  uint32_t grid[3];
  /**
   * The number of threads in a block, along x, y and z.
   */
  uint32_t block[3];
  /**
   * Dynamic shared memory per block, in bytes.
   */
  uint32_t shared_bytes;
  /**
   * An array with the address of each parameter, in order. The call copies the parameters. May be NULL for a
   * kernel without parameters.
   */
  void **parameters;
} plinth_graph_kernel_t;

/*! An initializer for a plinth_graph_kernel_t: one block of one thread. */
#define PLINTH_GRAPH_KERNEL_INIT {sizeof(plinth_graph_kernel_t), NULL, {1, 1, 1}, {1, 1, 1}, 0, NULL}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a graph without nodes, to which the plinth_graph_add_ functions add nodes.
 *
 * The graph behaves like a graph that was captured with PLINTH_GRAPH_KEEP_GRAPH: plinth_graph_instantiate
 * instantiates it, plinth_graph_replay launches it. Nodes can be added to a captured graph that kept its nodes in
 * the same way.
 *
 * These rules hold for all functions that add a node:
 * - The node waits for its dependencies, which are nodes of the same graph, without duplicates. Nodes that are not
 *   connected by a path of dependencies may run concurrently.
 * - A new node takes part in replays after the next plinth_graph_instantiate, not in earlier ones.
 * - Memory that a node uses, and the context of a host function, must stay valid as long as the graph or an
 *   instantiation of it may run. Nodes do not allocate memory; the program does so beforehand.
 * - A node lives as long as its graph and cannot be removed, but kernel, copy and fill nodes can be disabled with
 *   plinth_graph_node_set_enabled.
 * - Calls for one graph are serialized.
 *
 * @param device The index of the device on which the graph runs; -1 for the current device.
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_graph_create_empty(int32_t device,
                                          plinth_graph_t *graph)
PLINTH_NOEXCEPT;

/**
 * Adds a kernel node to a graph.
 *
 * @param graph The graph: created with plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body
 *        of a conditional node.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param kernel The launch.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid graph, and for a
 *         dependency that is not a node of it; PLINTH_ERROR_INVALID_VALUE for a duplicate dependency, and for a grid
 *         or block size that the device does not support; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is
 *         neither built nor captured; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_kernel(plinth_graph_t graph,
                                        const plinth_graph_node_t *dependencies,
                                        size_t count,
                                        const struct plinth_graph_kernel_t *kernel,
                                        plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy node to a graph, between device and CPU memory, as plinth_memcpy copies.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param destination The memory to write.
 * @param source The memory to read, at each replay.
 * @param bytes The number of bytes; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE also for 0 bytes, and for an address range that is
 *         not memory.
 */
PLINTH_API
plinth_status_t plinth_graph_add_copy(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      void *destination,
                                      const void *source,
                                      size_t bytes,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that fills device memory.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param pointer The first element, aligned to its size.
 * @param value The value of each element. Smaller elements use its low bits.
 * @param element_size The size of an element: 1, 2 or 4 bytes.
 * @param elements The number of elements; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE also for another element_size, a misaligned
 *         pointer, 0 elements, and for an address range that is not device memory.
 */
PLINTH_API
plinth_status_t plinth_graph_add_fill(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      void *pointer,
                                      uint32_t value,
                                      size_t element_size,
                                      size_t elements,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that calls a function on the CPU. Nodes that depend on it wait until the function returns.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param function The function. A thread of the driver calls it at each replay.
 * @param context Passed to the function. The caller keeps it alive as long as the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_add_host(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      plinth_host_function_callback_t function,
                                      void *context,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy of another graph to a graph, as one node.
 *
 * The child may be changed or destroyed afterwards. Memory of the child's pool stays allocated as long as either
 * graph exists. Replays of the two graphs, and of all other graphs of the pool, do not overlap.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param child The other graph, which must have kept its nodes and must not use random numbers.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel, for both graphs; PLINTH_ERROR_INVALID_VALUE for a child that uses random
 *         numbers; PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_NOT_SUPPORTED for a child with conditional nodes.
 */
PLINTH_API
plinth_status_t plinth_graph_add_child(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_t child,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds an empty node to a graph, which only waits for its dependencies. Other nodes can depend on it.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_add_empty(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that records an event.
 *
 * Each replay records the event again. Streams outside of the graph can wait for it, and the program can measure the
 * time between two such events. Before the first replay, the event is complete and has no time unless it was recorded
 * elsewhere.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param event The event, which belongs to the graph's device from now on. Do not destroy it while the graph may
 *        run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid event; PLINTH_ERROR_DEVICE_MISMATCH
 *         for an event of another device.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_record(plinth_graph_t graph,
                                              const plinth_graph_node_t *dependencies,
                                              size_t count,
                                              plinth_event_t event,
                                              plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that waits for an event: each replay waits for the last record of the event before the
 * replay.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param event The event. Do not destroy it while the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid event.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_wait(plinth_graph_t graph,
                                            const plinth_graph_node_t *dependencies,
                                            size_t count,
                                            plinth_event_t event,
                                            plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Makes a node of a graph wait for another one. Dependencies must not form a cycle; plinth_graph_instantiate detects
 * cycles.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param from The node for which the other one waits.
 * @param to The node that waits.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if both are
 *         the same node, and for a dependency that already exists; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_dependency(plinth_graph_t graph,
                                            plinth_graph_node_t from,
                                            plinth_graph_node_t to)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_graph_nodes Nodes of a graph
 *
 * Lists the nodes of a graph, and reads and changes them.
 *
 * @{
 */

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Lists the nodes of a graph in the driver's order, without those of child graphs and bodies.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param nodes Out: up to `capacity` nodes; NULL to get only the count.
 * @param capacity The number of elements that `nodes` has room for.
 * @param count Out: the number of nodes, which may exceed the number that was written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_nodes(plinth_graph_t graph,
                                   plinth_graph_node_t *nodes,
                                   size_t capacity,
                                   size_t *count)
PLINTH_NOEXCEPT;

/**
 * Gets the type of a node.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param node A node of the graph.
 * @param node_type Out: one of the PLINTH_GRAPH_NODE_ constants, or another value of CUDA's CUgraphNodeType.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_type(plinth_graph_t graph,
                                       plinth_graph_node_t node,
                                       uint32_t *node_type)
PLINTH_NOEXCEPT;

/**
 * Gets the launch of a kernel node.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param node A kernel node of the graph.
 * @param kernel In: struct_size. Out: the launch. Its parameters belong to the graph and must not be written; they are
 *        NULL if the program passed them packed into one buffer. The function is NULL if the driver has no CUfunction
 *        for the kernel.
 * @return As plinth_graph_node_type; PLINTH_ERROR_INVALID_VALUE for a node that is not a kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_node_get_kernel(plinth_graph_t graph,
                                             plinth_graph_node_t node,
                                             plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Changes the launch of a kernel node of an instantiated graph.
 *
 * The change applies to later replays. It does not affect running replays, or the next plinth_graph_instantiate.
 *
 * @param graph The graph, which must have kept its nodes and be instantiated.
 * @param node A kernel node of the graph, which must have existed when the graph was instantiated.
 * @param kernel The launch, of a kernel of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node
 *         that is not a kernel or was added later, for an invalid launch, and for the body of a conditional node;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED, also for a graph that is not instantiated; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_set_kernel(plinth_graph_t graph,
                                             plinth_graph_node_t node,
                                             const plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Enables or disables a kernel, copy or fill node of an instantiated graph for later replays.
 *
 * Nodes that depend on a disabled node wait for that node's dependencies. plinth_graph_instantiate enables all nodes
 * again. If the last node of a graph is disabled, driver 580 (CUDA 13.0) may report the end of a replay before the
 * nodes that precede it are done: add another node after it.
 *
 * @param graph The graph, which must have kept its nodes and be instantiated.
 * @param node A kernel, copy or fill node of the graph, which must have existed when the graph was instantiated.
 * @param enabled Whether replays execute the node.
 * @return As plinth_graph_node_set_kernel; PLINTH_ERROR_INVALID_VALUE for a node of another type.
 */
PLINTH_API
plinth_status_t plinth_graph_node_set_enabled(plinth_graph_t graph,
                                              plinth_graph_node_t node,
                                              bool enabled)
PLINTH_NOEXCEPT;

/**
 * Gets whether a kernel, copy or fill node of an instantiated graph is enabled.
 *
 * @param graph The graph, which must have kept its nodes and be instantiated.
 * @param node As in plinth_graph_node_set_enabled.
 * @param enabled Out: whether it is.
 * @return As plinth_graph_node_set_enabled.
 */
PLINTH_API
plinth_status_t plinth_graph_node_get_enabled(plinth_graph_t graph,
                                              plinth_graph_node_t node,
                                              bool *enabled)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*!
 * @defgroup plinth_graph_condition Conditional nodes
 *
 * Nodes that run a body never, once or repeatedly, depending on a value that kernels set on the device. A condition
 * and the bodies belong to the graph that they were created for and end with it.
 *
 * @{
 */

/**
 * A condition: the same value as a `cudaGraphConditionalHandle`, which the program's kernels pass to
 * `cudaGraphSetConditional(condition, value)`. Each call looks it up before use, so an invalid condition is an
 * error.
 */
typedef uint64_t plinth_graph_condition_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a condition for one conditional node of a graph, or of a body inside it.
 *
 * A condition is a 32-bit value on the device. Kernels in the graph set it, and the node reads it when the replay
 * reaches the node. The condition must be used in a node before the graph is instantiated. It lives as long as the
 * graph.
 *
 * @param graph The graph: created with plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body
 *        of a conditional node.
 * @param default_value The value of the condition at the start of each replay.
 * @param condition Out: the condition.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older
 *         than CUDA 12.4; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_condition_create(plinth_graph_t graph,
                                              uint32_t default_value,
                                              plinth_graph_condition_t *condition)
PLINTH_NOEXCEPT;

/**
 * Adds a conditional node to a graph whose body runs if the condition is not 0 when the replay reaches the node.
 *
 * These rules hold for the bodies of all conditional nodes:
 * - A body is a graph that is empty at first. It is filled with the plinth_graph_add_ functions, or by a capture
 *   into it with plinth_graph_capture_begin or plinth_graph_begin and the functions that end them. A capture adds
 *   its nodes after the existing ones. Memory that is allocated in it belongs to the enclosing graph. Random numbers
 *   cannot be used in it.
 * - It can contain kernels, copies and fills of device memory, empty nodes, child graphs and conditional nodes, all
 *   of one device.
 * - It belongs to the enclosing graph: it cannot be instantiated, replayed, reset or destroyed by itself
 *   (PLINTH_ERROR_INVALID_VALUE), and its handle becomes invalid when the enclosing graph is reset or destroyed.
 *   plinth_graph_reset of a body that is being captured discards the capture.
 * - It can be filled until the enclosing graph is instantiated. Graphs with conditional nodes cannot be copied or
 *   added as children, and their nodes cannot be measured with plinth_graph_node_times.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param condition A condition of the graph, or of an enclosing graph, that no other node uses.
 * @param body Out: the body.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid graph or condition, and
 *         for a dependency that is not a node of the graph; PLINTH_ERROR_INVALID_VALUE for a condition that another
 *         node uses or that belongs to another graph, and for a duplicate dependency;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.4; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_if(plinth_graph_t graph,
                                    const plinth_graph_node_t *dependencies,
                                    size_t count,
                                    plinth_graph_condition_t condition,
                                    plinth_graph_t *body,
                                    plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a conditional node to a graph with two bodies: the first one runs if the condition is not 0, the second one
 * if it is 0.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param condition As in plinth_graph_add_if.
 * @param then_body Out: the first body.
 * @param else_body Out: the second body.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.8.
 */
PLINTH_API
plinth_status_t plinth_graph_add_if_else(plinth_graph_t graph,
                                         const plinth_graph_node_t *dependencies,
                                         size_t count,
                                         plinth_graph_condition_t condition,
                                         plinth_graph_t *then_body,
                                         plinth_graph_t *else_body,
                                         plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a conditional node to a graph whose body runs repeatedly while the condition is not 0.
 *
 * A kernel in the body must set the condition to 0 eventually: an endless loop cannot be stopped.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param condition As in plinth_graph_add_if. If its default value is not 0, the body runs at least once.
 * @param body Out: the body.
 * @param node Out: the node.
 * @return As plinth_graph_add_if.
 */
PLINTH_API
plinth_status_t plinth_graph_add_while(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_condition_t condition,
                                       plinth_graph_t *body,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a conditional node to a graph that runs the body whose index is the value of the condition, or no body if the
 * value is out of range.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param condition As in plinth_graph_add_if.
 * @param bodies Out: the bodies, starting with index 0.
 * @param body_count The number of bodies, 1 to 4096.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but PLINTH_ERROR_NOT_SUPPORTED with a driver older than CUDA 12.8;
 *         PLINTH_ERROR_INVALID_VALUE for another body_count.
 */
PLINTH_API
plinth_status_t plinth_graph_add_switch(plinth_graph_t graph,
                                        const plinth_graph_node_t *dependencies,
                                        size_t count,
                                        plinth_graph_condition_t condition,
                                        plinth_graph_t *bodies,
                                        size_t body_count,
                                        plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a kernel node to a graph that sets a condition to a 32-bit value, which it reads from memory when it runs.
 *
 * @param graph The graph whose node uses the condition, or one inside or around it.
 * @param dependencies The nodes for which the node waits; may be NULL if there are none.
 * @param count The number of dependencies.
 * @param condition The condition.
 * @param value The address of the value: 4 bytes of memory that the device can read, aligned to 4 bytes.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for an invalid condition;
 *         PLINTH_ERROR_INVALID_VALUE for a misaligned address.
 */
PLINTH_API
plinth_status_t plinth_graph_add_condition_set(plinth_graph_t graph,
                                               const plinth_graph_node_t *dependencies,
                                               size_t count,
                                               plinth_graph_condition_t condition,
                                               const void *value,
                                               plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Launches the kernel of plinth_graph_add_condition_set in a stream that captures, so that it becomes a node of the
 * captured graph: the body whose node uses the condition, or an enclosing graph.
 *
 * @param condition The condition.
 * @param value As in plinth_graph_add_condition_set.
 * @param stream The stream, of the condition's device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid condition or stream;
 *         PLINTH_ERROR_INVALID_VALUE for a misaligned address; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURING for a stream that does not capture; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_condition_set_from(plinth_graph_condition_t condition,
                                                const void *value,
                                                plinth_stream_t stream)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_GRAPH_BUILD_H */
