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
 * A node that is a graph of its own.
 */
#define PLINTH_GRAPH_NODE_GRAPH 4

/**
 * A node that only waits for others.
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
 * A launch of a kernel.
 */
typedef struct plinth_graph_kernel_t {
  /**
   * The kernel: a CUfunction, or a cudaFunction_t, which is the same. It must be loaded as long as the graph has it, in
   * the primary context of the graph's device.
   */
  void *function;
  /**
   * How many blocks, along each axis.
   */
  uint32_t grid[3];
  /**
   * How many threads a block has, along each axis.
   */
  uint32_t block[3];
  /**
   * Dynamic shared memory, in bytes a block.
   */
  uint32_t shared_bytes;
  /**
   * The address of each parameter, in order; what they lead to is copied by the call. May be NULL for a kernel without
   * parameters.
   */
  void **parameters;
} plinth_graph_kernel_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates a graph that is built by hand: it has no nodes yet, and they come by the plinth_graph_add_ functions. From then on
 * it is as a captured one that was made with PLINTH_GRAPH_KEEP_GRAPH: plinth_graph_instantiate makes it ready,
 * plinth_graph_replay launches it. A captured graph that kept its nodes can be added to in the same way.
 *
 * The rules that hold for all functions that add a node:
 * - The node waits for its dependencies, which are nodes of the same graph, each once. Nodes between which there is no way
 *   along dependencies may run at once.
 * - What is added is in the replays after the next plinth_graph_instantiate, not in those before.
 * - Memory that a node uses, and what its function is given, must stay valid as long as the graph, or what was instantiated of
 *   it, may run. Nodes do not allocate; the program does that before.
 * - A node lives as long as its graph. It cannot be taken out again, but kernels, copies and fills can be switched off:
 *   plinth_graph_node_set_enabled.
 * - Thread-safe; calls with one graph follow one another.
 *
 * @param device The device whose work the graph is; -1 for the current one.
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization.
 */
PLINTH_API
plinth_status_t plinth_graph_create_empty(int32_t device,
                                          plinth_graph_t *graph)
PLINTH_NOEXCEPT;

/**
 * Adds a launch of a kernel to a graph.
 *
 * @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
 *        conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param kernel The launch.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph, and for a
 *         dependency that is no node of it; PLINTH_ERROR_INVALID_VALUE for a dependency that is there twice, for a grid or a
 *         block of a size that the device does not have; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is neither built
 *         nor captured; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_kernel(plinth_graph_t graph,
                                        const plinth_graph_node_t *dependencies,
                                        size_t count,
                                        const struct plinth_graph_kernel_t *kernel,
                                        plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy to a graph, between memory of devices and of the CPU, as plinth_memcpy makes it.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param destination The first byte written.
 * @param source The first byte read. It is read at each replay.
 * @param bytes How many; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for 0 bytes, too, and for a range that is no memory.
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
 * Adds a fill of memory of a device to a graph.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param pointer The first element, aligned to its size.
 * @param value What each element becomes; of smaller elements the low bits.
 * @param element_size The size of an element: 1, 2 or 4 bytes.
 * @param elements How many elements; not 0.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_VALUE for another element_size, a pointer that is not aligned, 0
 *         elements, and for a range that is no memory of a device.
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
 * Adds a call of a function on the CPU to a graph. What depends on it waits for its return.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param function The function; called at each replay, by a thread of the driver's.
 * @param context Passed to the function. The caller keeps it alive as long as the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_add_host(plinth_graph_t graph,
                                      const plinth_graph_node_t *dependencies,
                                      size_t count,
                                      plinth_host_function_t function,
                                      void *context,
                                      plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a copy of another graph to a graph, as one node. The child may be changed or destroyed afterwards. Memory of the
 * child's pool stays as long as either graph, and replays of the two, and of all other graphs of the pool, do not overlap.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param child The other graph, which kept its nodes and takes no random numbers.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel, for both graphs; PLINTH_ERROR_INVALID_VALUE for a child that takes random numbers;
 *         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_NOT_SUPPORTED for a child with conditional nodes.
 */
PLINTH_API
plinth_status_t plinth_graph_add_child(plinth_graph_t graph,
                                       const plinth_graph_node_t *dependencies,
                                       size_t count,
                                       plinth_graph_t child,
                                       plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph that does nothing but wait: a point that others can depend on.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
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
 * Adds the recording of an event to a graph: each replay records it anew, and streams outside can wait for it, or ask for the
 * time between two. Counts as recorded from this call on; before the first replay it is complete.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param event The event, of the graph's device from now on. It must not be destroyed while the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event;
 *         PLINTH_ERROR_DEVICE_MISMATCH for an event of another device.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_record(plinth_graph_t graph,
                                              const plinth_graph_node_t *dependencies,
                                              size_t count,
                                              plinth_event_t event,
                                              plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Adds a wait for an event to a graph: each replay waits for what the event recorded last before the replay.
 *
 * @param graph As in plinth_graph_add_kernel, but not the body of a conditional node.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param event The event. It must not be destroyed while the graph may run.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no event.
 */
PLINTH_API
plinth_status_t plinth_graph_add_event_wait(plinth_graph_t graph,
                                            const plinth_graph_node_t *dependencies,
                                            size_t count,
                                            plinth_event_t event,
                                            plinth_graph_node_t *node)
PLINTH_NOEXCEPT;

/**
 * Makes a node of a graph wait for another one. Dependencies must not form a circle; plinth_graph_instantiate finds those.
 *
 * @param graph As in plinth_graph_add_kernel.
 * @param from The node that is waited for.
 * @param to The node that waits.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node and itself,
 *         and for a dependency that is there already; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_add_dependency(plinth_graph_t graph,
                                            plinth_graph_node_t from,
                                            plinth_graph_node_t to)
PLINTH_NOEXCEPT;

/**
 * Lists the nodes of a graph, without those of the graphs inside it, in an order of the driver's.
 *
 * @param graph The graph, which kept its nodes.
 * @param nodes Out: the nodes; NULL to ask for the count only.
 * @param count In: for how many there is room; out: how many there are. If they are more, only as many as fit are written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_nodes(plinth_graph_t graph,
                                   plinth_graph_node_t *nodes,
                                   size_t *count)
PLINTH_NOEXCEPT;

/**
 * Tells what a node is.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it.
 * @param node_type Out: one of PLINTH_GRAPH_NODE_..., or another number of CUDA's CUgraphNodeType.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_type(plinth_graph_t graph,
                                       plinth_graph_node_t node,
                                       uint32_t *node_type)
PLINTH_NOEXCEPT;

/**
 * Tells what a kernel's node launches.
 *
 * @param graph The graph, which kept its nodes.
 * @param node A node of it that launches a kernel.
 * @param kernel Out: the launch. Its parameters are the graph's own and must not be written to; they are NULL where the
 *        program gave them packed into one buffer. The function is NULL where the driver has no CUfunction for it.
 * @return As plinth_graph_node_type; PLINTH_ERROR_INVALID_VALUE for a node that is no kernel.
 */
PLINTH_API
plinth_status_t plinth_graph_node_kernel(plinth_graph_t graph,
                                         plinth_graph_node_t node,
                                         struct plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Gives a kernel of an instantiated graph another launch, in the replays from now on; those that run are not changed, nor
 * is what plinth_graph_instantiate will make of the graph next.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node A node of it that launches a kernel. It had to be there when the graph was instantiated.
 * @param kernel The launch, of a kernel of the same device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a node that is no
 *         kernel or came later, for a launch that cannot be, and for the body of a conditional node;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a graph that is not instantiated, too; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_set_kernel(plinth_graph_t graph,
                                        plinth_graph_node_t node,
                                        const struct plinth_graph_kernel_t *kernel)
PLINTH_NOEXCEPT;

/**
 * Switches a kernel, copy or fill of an instantiated graph off or on, in the replays from now on. What waits for it waits
 * for its dependencies then. plinth_graph_instantiate makes all nodes anew, switched on. With a last node that is switched
 * off, driver 580 (CUDA 13.0) may tell of the end of a replay before the nodes in front of it are done: let another node
 * come after it.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node A node of it that is a kernel, a copy or a fill. It had to be there when the graph was instantiated.
 * @param enabled Whether it is to be carried out.
 * @return As plinth_graph_set_kernel, for a node that is none of the three.
 */
PLINTH_API
plinth_status_t plinth_graph_node_set_enabled(plinth_graph_t graph,
                                              plinth_graph_node_t node,
                                              bool enabled)
PLINTH_NOEXCEPT;

/**
 * Tells whether a kernel, copy or fill of an instantiated graph is switched on.
 *
 * @param graph The graph, which kept its nodes and is instantiated.
 * @param node As in plinth_graph_node_set_enabled.
 * @param enabled Out: whether it is.
 * @return As plinth_graph_node_set_enabled.
 */
PLINTH_API
plinth_status_t plinth_graph_node_enabled(plinth_graph_t graph,
                                          plinth_graph_node_t node,
                                          bool *enabled)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_graph_condition Conditional nodes
 *
 * Nodes that run a body never, once or repeatedly, depending on a value that kernels set on the device. A condition
 * and the bodies belong to the graph that they were created for and end with it.
 *
 * @{
 */

/**
 * A condition: the same value as a `cudaGraphConditionalHandle`, which kernels of the program's give to
 * `cudaGraphSetConditional(condition, value)`. It is looked up before it is used, so that a wrong one is an error.
 */
typedef uint64_t plinth_graph_condition_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a condition for one conditional node of a graph, or of a body inside it: a 32-bit value on the device, which kernels
 * in the graph set, and which the node asks when the graph gets to it. The condition must be used in a node before the graph
 * is instantiated, and lives as long as the graph.
 *
 * @param graph The graph: made by plinth_graph_create_empty, captured with PLINTH_GRAPH_KEEP_GRAPH, or the body of a
 *        conditional node.
 * @param default_value What each replay of the graph begins with.
 * @param condition Out: the condition.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
 *         CUDA 12.4; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_condition_create(plinth_graph_t graph,
                                              uint32_t default_value,
                                              plinth_graph_condition_t *condition)
PLINTH_NOEXCEPT;

/**
 * Adds a node to a graph whose body is carried out if the condition is not 0 when the graph gets there.
 *
 * The rules that hold for the bodies of all conditional nodes:
 * - A body is a graph, empty at first. It is filled with the plinth_graph_add_ functions, or by capturing into it: with
 *   plinth_graph_capture_begin or plinth_graph_begin, and the end of those. A capture adds to what is there, behind it.
 *   Memory that it allocates belongs to the graph around it. Random numbers cannot be taken in it.
 * - It has kernels, copies and fills of device memory, empty nodes, child graphs and conditional nodes, all of one device.
 * - It belongs to the graph around it: it is not instantiated, replayed, reset or destroyed for itself
 *   (PLINTH_ERROR_INVALID_VALUE), and its handle ends when that graph is reset or destroyed. plinth_graph_reset of a body that
 *   is being captured throws the capture away.
 * - It can be filled until the graph around it is instantiated. Graphs with conditional nodes cannot be copied, added as
 *   children, or timed node by node.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition A condition of the graph, or of one around it, that no other node asks.
 * @param body Out: the body.
 * @param node Out: the node.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no graph or no condition,
 *         and for a dependency that is no node of the graph; PLINTH_ERROR_INVALID_VALUE for a condition that another node
 *         asks, or of another graph, and for a dependency that is there twice; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_NOT_SUPPORTED with a driver older than
 *         CUDA 12.4; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
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
 * Adds a node to a graph of whose two bodies the first one is carried out if the condition is not 0, and the second one if it
 * is.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if.
 * @param then_body Out: the first body.
 * @param else_body Out: the second body.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8.
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
 * Adds a node to a graph whose body is carried out again and again while the condition is not 0. Something in the body has
 * to set the condition to 0 at some time: what never ends cannot be stopped.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if. With a default that is not 0 the body is carried out once at least.
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
 * Adds a node to a graph that carries out the body whose number the condition is, and none if there is no such body.
 *
 * @param graph As in plinth_graph_condition_create.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition As in plinth_graph_add_if.
 * @param bodies Out: the bodies, from number 0 on.
 * @param body_count How many bodies: 1 to 4096.
 * @param node Out: the node.
 * @return As plinth_graph_add_if, but the driver has to be of CUDA 12.8; PLINTH_ERROR_INVALID_VALUE for another body_count.
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
 * Adds a kernel to a graph that gives a condition the 32-bit value that is in memory when it runs.
 *
 * @param graph The graph that asks the condition, or one inside or around it.
 * @param dependencies The nodes that it waits for; may be NULL if there are none.
 * @param count How many they are.
 * @param condition The condition.
 * @param value Where the value is: 4 bytes that the device can read, aligned.
 * @param node Out: the node.
 * @return As plinth_graph_add_kernel; PLINTH_ERROR_INVALID_HANDLE for something that is no condition;
 *         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned.
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
 * Launches the same kernel in a stream that is capturing, so that it becomes a part of what is captured: the body that asks
 * the condition, or a graph around it.
 *
 * @param condition The condition.
 * @param value As in plinth_graph_add_condition_set.
 * @param stream The stream, of the condition's device.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for something that is no condition or no stream;
 *         PLINTH_ERROR_INVALID_VALUE for an address that is not aligned; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURING for a stream that is not capturing; PLINTH_ERROR_DRIVER.
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
