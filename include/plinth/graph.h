/*!
 * @defgroup plinth_graph Graphs
 *
 * A graph is work that is captured once and replayed as a whole: torch.cuda.CUDAGraph.
 *
 * The caller owns a graph and destroys it. Memory that is allocated during a capture comes from the graph's pool,
 * which several graphs may share; the pool keeps it as long as a graph needs it. The driver's handles that
 * plinth_graph_native and plinth_graph_exec_native return belong to the graph. Memory that the work uses must stay
 * valid as long as the graph is replayed.
 *
 * Calls for one graph wait for each other; different graphs may be used by different threads at once. A capture ends
 * in the thread that began it, unless it is PLINTH_CAPTURE_RELAXED. Replays of graphs that share a pool never overlap
 * on the device.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

/* Generated from src/ffi by `make header`; changes made here are lost. */

#ifndef PLINTH_GRAPH_H
#define PLINTH_GRAPH_H

#include "base.h"
#include "stream.h"
#include "mem_pool.h"
#include "generator.h"

/*!
 * @file plinth/graph.h
 * @brief Graphs.
 */

/*!
 * @addtogroup plinth_graph
 * @{
 */

/*! A node of a graph: the same type as cudaGraphNode_t and CUgraphNode. */
typedef struct CUgraphNode_st *plinth_graph_node_t;

/**
 * A flag of plinth_graph_set_flags: the graph keeps its nodes after the end of the capture. plinth_graph_instantiate
 * or the first replay instantiates it. This is torch's keep_graph.
 */
#define PLINTH_GRAPH_KEEP_GRAPH 1

/**
 * During the capture no thread may make calls that could invalidate it.
 */
#define PLINTH_CAPTURE_GLOBAL 0

/**
 * During the capture the capturing thread may not make calls that could invalidate it.
 */
#define PLINTH_CAPTURE_THREAD_LOCAL 1

/**
 * During the capture all calls are allowed. The capture may end in another thread than it began in.
 */
#define PLINTH_CAPTURE_RELAXED 2

/**
 * A replay that would overlap another replay of its pool waits for that replay on the device.
 */
#define PLINTH_GRAPH_OVERLAP_ORDER 0

/**
 * A replay that would overlap another replay of its pool fails with PLINTH_ERROR_GRAPH_OVERLAP.
 */
#define PLINTH_GRAPH_OVERLAP_REFUSE 1

/**
 * A graph: work that is captured once and replayed as a whole.
 *
 * The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
 * is of another kind, or that never was a handle. Calls for one graph are serialized; different graphs may be used
 * by different threads at the same time.
 */
typedef struct plinth_graph plinth_graph;

/**
 * The handle of a graph.
 */
typedef struct plinth_graph *plinth_graph_t;

/**
 * The state that plinth_graph_end restores. plinth_graph_begin fills it; do not change it.
 */
typedef struct plinth_graph_context_t {
  /**
   * The graph.
   */
  plinth_graph_t graph;
  /**
   * The streams and the device that were current.
   */
  plinth_stream_context_t streams;
} plinth_graph_context_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Creates an empty graph, ready for a capture. Needs no device.
 *
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live graphs.
 */
PLINTH_API plinth_status_t plinth_graph_create(plinth_graph_t *graph) PLINTH_NOEXCEPT;

/**
 * Sets the flags of a graph that has no capture yet.
 *
 * @param graph The graph.
 * @param flags 0, the default, or PLINTH_GRAPH_KEEP_GRAPH.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
 *         flags; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_CAPTURED, until plinth_graph_reset.
 */
PLINTH_API
plinth_status_t plinth_graph_set_flags(plinth_graph_t graph,
                                       uint32_t flags)
PLINTH_NOEXCEPT;

/**
 * Resets a graph, as plinth_graph_reset does, and destroys its handle.
 *
 * @param graph The graph; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD and PLINTH_ERROR_DRIVER as
 *         plinth_graph_reset: the handle remains valid, and the call can be repeated.
 */
PLINTH_API plinth_status_t plinth_graph_destroy(plinth_graph_t graph) PLINTH_NOEXCEPT;

/**
 * Resets a graph to the state after its creation, so that another capture can begin.
 *
 * A running replay finishes. Memory of the pool that only this graph used is released to the driver after that
 * replay; the call waits for it only if the memory is not mapped (expandable_segments:False). Memory that the
 * program allocated in captures stays valid until the program frees it. A capture in progress is ended and
 * discarded.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD for a
 *         capture that is not relaxed and that another thread began: the capture continues; PLINTH_ERROR_DRIVER if
 *         the driver fails to destroy its objects: the call can be repeated.
 */
PLINTH_API
plinth_status_t plinth_graph_reset(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Begins to capture a graph in the calling thread's current stream.
 *
 * Work that is added to the stream from now on, and to streams that wait for it, does not run but becomes nodes of
 * the graph. Memory that is allocated for these streams comes from the graph's pool. Random fills use numbers that
 * each replay determines, from the device's default generator and from registered generators.
 *
 * A call that would invalidate the capture, such as a synchronization, fails with PLINTH_ERROR_CAPTURE_FORBIDS and a
 * message that names the driver call. The capture is then invalid, and plinth_graph_capture_end returns an error.
 *
 * @param graph The graph, which must be new or reset.
 * @param pool The pool, from plinth_graph_pool_handle, plinth_graph_pool or plinth_mem_pool_create; NULL or {0, 0}
 *        for a pool of the graph's own. Graphs that share a pool share its memory: a graph that was captured later
 *        may use memory that an earlier one had freed, and must be replayed after it.
 * @param mode PLINTH_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE, also for a pool that was never created or
 *         was destroyed; PLINTH_ERROR_INVALID_VALUE for another mode, and for a pool to which another capture or the
 *         program currently allocates; PLINTH_ERROR_GRAPH_CAPTURED and PLINTH_ERROR_GRAPH_CAPTURING for a graph that is not
 *         new; PLINTH_ERROR_GRAPH_DEFAULT_STREAM; PLINTH_ERROR_CAPTURE_FORBIDS if the stream already captures;
 *         PLINTH_ERROR_GRAPH_ASLEEP for a pool whose memory was released with plinth_graph_sleep;
 *         PLINTH_ERROR_DEVICE_MISMATCH for a registered generator of another device; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER; the errors of initialization. After an error no capture is in progress.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_begin(plinth_graph_t graph,
                                           const plinth_pool_id_t *pool,
                                           int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Ends a capture.
 *
 * The stream in which the capture began must be the current one. Afterwards the graph can be replayed. If nothing was
 * captured, the graph is valid, its replays do nothing, and the log has a warning. A graph with
 * PLINTH_GRAPH_KEEP_GRAPH is instantiated by plinth_graph_instantiate or by the first replay.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURING;
 *         PLINTH_ERROR_GRAPH_WRONG_STREAM, and PLINTH_ERROR_GRAPH_WRONG_THREAD for a capture that is not relaxed:
 *         the capture continues and can be ended in the stream and thread in which it began. After any other error
 *         the graph is new, the stream no longer captures, and memory that was allocated in the capture still
 *         belongs to the program: PLINTH_ERROR_CAPTURE_INVALIDATED after a call that the capture forbade;
 *         PLINTH_ERROR_GRAPH_UNJOINED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_end(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Instantiates a graph that was captured with PLINTH_GRAPH_KEEP_GRAPH. Repeat the call after the program changed the
 * graph's nodes with its own driver calls.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_CAPTURING;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_NOT_KEPT for a graph without PLINTH_GRAPH_KEEP_GRAPH;
 *         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_instantiate(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Uploads a graph to its device in the calling thread's current stream there, which makes the first replay faster.
 * Instantiates the graph if necessary, as plinth_graph_instantiate does.
 *
 * @param graph The graph.
 * @return As plinth_graph_instantiate, but any graph may be uploaded; PLINTH_ERROR_CAPTURE_FORBIDS.
 */
PLINTH_API
plinth_status_t plinth_graph_upload(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Replays a graph in the calling thread's current stream on the graph's device, which may be the default stream.
 *
 * The call returns before the work is done. The generators of the graph advance as they would by the same calls
 * without a graph.
 *
 * Graphs of one pool never run concurrently. If the pool's last replay was in another stream, the replay waits for
 * it on the device or fails; see plinth_graph_set_overlap_policy. In one stream, graphs run in the order of their
 * replays. If one graph reads memory that another graph of the pool writes, replay them in the order of their
 * captures.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_GRAPH_OVERLAP;
 *         PLINTH_ERROR_ABORTED if it has captured calls of a communicator with PLINTH_ENGINE_SHARED that was destroyed, or
 *         calls with memory that was deregistered with plinth_communicator_deregister;
 *         PLINTH_ERROR_CAPTURE_FORBIDS if the current stream captures; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER. After an error nothing was launched and no random numbers were used.
 */
PLINTH_API
plinth_status_t plinth_graph_replay(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Sets what happens if a graph is replayed in one stream while another replay of its pool, of the same or another
 * graph, still runs in another stream.
 *
 * The graphs may use the same memory, so the replays must not overlap. A replay counts as running until its stream is idle.
 *
 * @param graph The graph to whose replays the policy applies.
 * @param policy PLINTH_GRAPH_OVERLAP_ORDER, the default, or PLINTH_GRAPH_OVERLAP_REFUSE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         policy.
 */
PLINTH_API
plinth_status_t plinth_graph_set_overlap_policy(plinth_graph_t graph,
                                                int32_t policy)
PLINTH_NOEXCEPT;

/**
 * Registers a generator with a graph, so that captures of the graph can use it in addition to the device's default
 * generator.
 *
 * Call this function before the capture. The graph keeps a reference to the generator's state, even if the generator
 * is destroyed.
 *
 * @param graph The graph, which must be new or reset. It keeps its registered generators over a reset.
 * @param generator The generator, of the device that will be captured; NULL for the device's default generator.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL graph; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_GRAPH_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING.
 */
PLINTH_API
plinth_status_t plinth_graph_register_generator_state(plinth_graph_t graph,
                                                      plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Creates an unused pool id for graphs that are to share a pool. Allocates no memory.
 *
 * @param pool Out: the pool id. It is valid until the process ends and need not be destroyed. The pool holds memory as
 *        long as graphs use it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API
plinth_status_t plinth_graph_pool_handle(plinth_pool_id_t *pool)
PLINTH_NOEXCEPT;

/**
 * Gets the pool of a graph that is captured or being captured.
 *
 * @param graph The graph.
 * @param pool Out: the pool id.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API plinth_status_t plinth_graph_pool(plinth_graph_t graph, plinth_pool_id_t *pool) PLINTH_NOEXCEPT;

/**
 * Gets the memory of a graph's pool, on all devices, including that of other graphs that share the pool.
 *
 * @param graph The graph, captured or being captured.
 * @param allocated Out: the bytes that captures allocated and that are not freed.
 * @param held Out: the bytes of physical memory of the pool; 0 while it is released with plinth_graph_sleep.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_memory(plinth_graph_t graph,
                                    size_t *allocated,
                                    size_t *held)
PLINTH_NOEXCEPT;

/**
 * Releases the physical memory of a graph's pool to the driver and keeps the addresses reserved.
 *
 * The call first waits for all work of the devices. The contents are lost, including inputs and outputs that
 * captures allocated in the pool: after plinth_graph_wake, write again all data that a replay reads and does not
 * write itself. Until plinth_graph_wake, calls that replay a graph of the pool fail with PLINTH_ERROR_GRAPH_ASLEEP.
 * Blocks of the pool can be freed meanwhile, but must not be accessed. Does nothing if the pool's memory is already
 * released.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_MEMORY_IN_USE while requests are allocated from the pool,
 *         while other processes hold memory of the pool, and for a pool with allocated blocks that was also used
 *         outside of captures, because any part of the program could use these blocks; PLINTH_ERROR_NOT_SUPPORTED
 *         for memory that is not mapped (expandable_segments:False) and for memory of a pluggable allocator;
 *         PLINTH_ERROR_CAPTURE_FORBIDS while a stream captures (the capture stays valid);
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_DRIVER: part of the memory may be released, and the pool then
 *         counts as asleep (repeat the call to release the rest).
 */
PLINTH_API
plinth_status_t plinth_graph_sleep(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Allocates physical memory for a graph's pool again, at the same addresses, after plinth_graph_sleep.
 *
 * The contents are undefined. Does nothing if the pool's memory is not released.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_OUT_OF_MEMORY and PLINTH_ERROR_DRIVER: the pool stays asleep.
 */
PLINTH_API
plinth_status_t plinth_graph_wake(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Checks whether the memory of a graph's pool is released with plinth_graph_sleep.
 *
 * @param graph The graph, captured or being captured.
 * @param asleep Out: whether it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API plinth_status_t plinth_graph_is_asleep(plinth_graph_t graph, bool *asleep) PLINTH_NOEXCEPT;

/**
 * Makes a graph keep its nodes after the end of the capture, for plinth_graph_debug_dump and plinth_graph_summary.
 * Call it before the capture ends.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_graph_enable_debug_mode(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Writes a graph to a file in Graphviz format: `dot -Tsvg FILE` draws it. Can be called repeatedly, unlike torch's
 * debug_dump.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param path The file. An existing file is replaced.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT without PLINTH_GRAPH_KEEP_GRAPH and plinth_graph_enable_debug_mode;
 *         PLINTH_ERROR_DRIVER if the file cannot be written.
 */
PLINTH_API
plinth_status_t plinth_graph_debug_dump(plinth_graph_t graph,
                                        const char *path)
PLINTH_NOEXCEPT;

/**
 * Describes the nodes of a graph in a table that suits a drawing.
 *
 * The table has a header line and a line for each node, with columns separated by tabs: the node's number, its layer
 * (the length of the longest path to it), its position in the layer, its type, a description, and the numbers of the
 * nodes on which it depends, separated by commas.
 *
 * @param graph The graph, which must have kept its nodes.
 * @param text Out: the text. The caller owns it and frees it with plinth_string_free.
 * @return As plinth_graph_debug_dump.
 */
PLINTH_API
plinth_status_t plinth_graph_summary(plinth_graph_t graph,
                                     char **text)
PLINTH_NOEXCEPT;

/**
 * Gets the CUgraph of a graph that kept its nodes, for direct driver calls: torch's raw_cuda_graph.
 *
 * It belongs to the library and is valid until the graph is reset or destroyed.
 *
 * @param graph The graph.
 * @param native Out: the CUgraph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT.
 */
PLINTH_API plinth_status_t plinth_graph_native(plinth_graph_t graph, void **native) PLINTH_NOEXCEPT;

/**
 * Gets the CUgraphExec of an instantiated graph: torch's raw_cuda_graph_exec.
 *
 * It belongs to the library and is valid until the graph is instantiated again, reset or destroyed. If you launch it
 * directly, you must advance its generators and prevent overlapping replays.
 *
 * @param graph The graph.
 * @param native Out: the CUgraphExec.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_exec_native(plinth_graph_t graph,
                                         void **native)
PLINTH_NOEXCEPT;

/**
 * Updates an instantiated graph, so that its later replays do the work of another graph.
 *
 * An update is much cheaper than an instantiation. It is possible if both graphs have the same nodes and edges and
 * differ only in parameters. Afterwards the graph uses the memory and the generators of the other graph, and shares
 * them with it. Replays that were launched earlier finish unchanged; memory that only this graph used is released
 * after them. A graph that kept its nodes keeps their memory and generators, to which its next instance and copies refer.
 *
 * @param graph The graph.
 * @param other A graph of the same device that kept its nodes. It does not change.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for the same
 *         graph; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_UPDATE_REFUSED, with the reason and the node in the message: the graph is unchanged,
 *         and can be captured again instead; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_update(plinth_graph_t graph,
                                    plinth_graph_t other)
PLINTH_NOEXCEPT;

/**
 * Updates a graph from a CUgraph of the program, as plinth_graph_update does. The graph keeps its memory and its
 * generators.
 *
 * @param graph The graph.
 * @param native The CUgraph, which still belongs to the program.
 * @return As plinth_graph_update.
 */
PLINTH_API
plinth_status_t plinth_graph_update_native(plinth_graph_t graph,
                                           void *native)
PLINTH_NOEXCEPT;

/**
 * Copies a graph that kept its nodes.
 *
 * Both graphs share their memory and generators, which stay alive until both graphs are reset or destroyed, so their
 * replays do not overlap. The copy keeps its nodes and is not instantiated.
 *
 * @param graph The graph.
 * @param copy Out: the copy. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_clone(plinth_graph_t graph,
                                   plinth_graph_t *copy)
PLINTH_NOEXCEPT;

/**
 * Begins a block that captures a graph, as `with torch.cuda.graph(...)` does. plinth_graph_end ends the block.
 *
 * The call waits for all work of the stream's device, releases cached memory as plinth_empty_cache does, makes the
 * stream and its device current, and begins the capture. While another thread captures, it neither waits nor releases.
 *
 * @param graph The graph, which must be new or reset.
 * @param pool As in plinth_graph_capture_begin.
 * @param stream The stream; NULL for one that the library keeps for a capture at a time on the current device.
 * @param mode As in plinth_graph_capture_begin.
 * @param context Out: the state that plinth_graph_end needs.
 * @return As plinth_graph_capture_begin; PLINTH_ERROR_WOULD_SYNCHRONIZE. After an error the current stream and
 *         device are unchanged.
 */
PLINTH_API
plinth_status_t plinth_graph_begin(plinth_graph_t graph,
                                   const plinth_pool_id_t *pool,
                                   plinth_stream_t stream,
                                   int32_t mode,
                                   struct plinth_graph_context_t *context)
PLINTH_NOEXCEPT;

/**
 * Ends a block that plinth_graph_begin began, in the same thread: ends the capture, and restores the previous
 * current stream and device even if the capture fails.
 *
 * If a call in the block failed, pass its status: the capture is discarded, the graph is new, and this call returns
 * that status. The message is that of the thread's last call if that call failed with this status; otherwise it
 * names the status.
 *
 * @param context The state that plinth_graph_begin filled.
 * @param body The result of the block: PLINTH_OK to keep the capture, or the status of the call that failed in it.
 * @return `body`, unless that is PLINTH_OK; PLINTH_ERROR_NULL_POINTER; otherwise as plinth_graph_capture_end.
 */
PLINTH_API
plinth_status_t plinth_graph_end(const struct plinth_graph_context_t *context,
                                 plinth_status_t body)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*!
 * @defgroup plinth_graph_times Times of a graph's nodes
 *
 * Measures how long each node of a graph takes. The nodes really run, and the call waits for them.
 *
 * @{
 */

/**
 * The duration of a node of a graph that runs alone on its device.
 */
typedef struct plinth_node_time_t {
  /**
   * In: the size of the struct in the caller. Out: the number of bytes that were filled.
   */
  size_t struct_size;
  /**
   * The node.
   */
  plinth_graph_node_t node;
  /**
   * One of the PLINTH_GRAPH_NODE_ constants.
   */
  uint32_t node_type;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * The median of the node's durations, in microseconds.
   */
  double microseconds;
  /**
   * A description: a kernel's name and launch configuration, or a copy's addresses. Truncated if it is longer.
   */
  char what[128];
} plinth_node_time_t;

/*! An initializer for a plinth_node_time_t. */
#define PLINTH_NODE_TIME_INIT {sizeof(plinth_node_time_t), NULL, 0, 0, 0.0, {0}}

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Measures the duration of each node of a graph.
 *
 * The call runs the nodes of a copy of the graph one after the other in the current stream of the graph's device,
 * records an event before the first node, between the nodes and after the last one, and waits for the results.
 *
 * The nodes really run: once and then `repeats` times. Each run has all effects of a replay on the program's memory,
 * random generators and events, and calls its host functions. Nodes do not overlap: nodes that a replay runs
 * concurrently are measured one at a time, so the sum of the durations can be longer than a replay. Each duration
 * includes the cost of an event, about one microsecond on a GPU. A child graph is one node.
 *
 * @param graph The graph, which must have kept its nodes and have no conditional nodes.
 * @param repeats The number of measured runs, 1 to 10000. The duration of a node is the median.
 * @param times In: struct_size of the first element. Out: up to `capacity` durations, in the order in which the nodes
 *        ran; NULL to get only the count, which still measures.
 * @param capacity The number of elements that `times` has room for.
 * @param count Out: the number of nodes, which may exceed the number that was written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
 *         struct_size was not set, for another number of repeats, for the body of a conditional node, and for a cycle
 *         of dependencies; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_NOT_SUPPORTED with conditional nodes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_GRAPH_ASLEEP;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_times(plinth_graph_t graph,
                                        uint32_t repeats,
                                        struct plinth_node_time_t *times,
                                        size_t capacity,
                                        size_t *count)
PLINTH_NOEXCEPT;

/**
 * Measures the duration of each node of a graph, as plinth_graph_node_times does, and returns a table.
 *
 * The table has a header line, a line for each node and a line with the sum. The columns, separated by tabs, are the
 * duration in microseconds, the type and the description of the node.
 *
 * @param graph As in plinth_graph_node_times.
 * @param repeats As in plinth_graph_node_times.
 * @param text Out: the table. The caller owns it and frees it with plinth_string_free.
 * @return As plinth_graph_node_times.
 */
PLINTH_API
plinth_status_t plinth_graph_time_table(plinth_graph_t graph,
                                        uint32_t repeats,
                                        char **text)
PLINTH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*! @} */

/*! @} */

#endif /* PLINTH_GRAPH_H */
