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
 * The graph keeps its nodes after the end of the capture, and is made ready by plinth_graph_instantiate, or by its first
 * replay: torch's keep_graph.
 */
#define PLINTH_GRAPH_KEEP_GRAPH 1

/**
 * While the capture goes on, no thread may make calls that could disturb it.
 */
#define PLINTH_CAPTURE_GLOBAL 0

/**
 * While the capture goes on, its own thread may make no calls that could disturb it.
 */
#define PLINTH_CAPTURE_THREAD_LOCAL 1

/**
 * While the capture goes on, every call may be made; it may end in another thread than it began in.
 */
#define PLINTH_CAPTURE_RELAXED 2

/**
 * A replay that would overlap with another one of its pool waits on the device for that one.
 */
#define PLINTH_GRAPH_OVERLAP_ORDER 0

/**
 * A replay that would overlap with another one of its pool is refused with PLINTH_ERROR_GRAPH_OVERLAP.
 */
#define PLINTH_GRAPH_OVERLAP_REFUSE 1

/**
 * A graph: work that is captured once and replayed as a whole. Opaque, and checked: a handle that was destroyed, is of
 * another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
 *
 * Calls for one graph wait for each other; different graphs may be used by different threads at once.
 */
typedef struct plinth_graph plinth_graph;

/**
 * The handle of a graph.
 */
typedef struct plinth_graph *plinth_graph_t;

/**
 * What plinth_graph_end must put back. Filled by plinth_graph_begin, and not to be changed.
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
 * Creates a graph with nothing captured. Needs no device. Thread-safe.
 *
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY with 16 million live graphs.
 */
PLINTH_API plinth_status_t plinth_graph_create(plinth_graph_t *graph) PLINTH_NOEXCEPT;

/**
 * As plinth_graph_create, with a choice.
 *
 * @param flags 0 or PLINTH_GRAPH_KEEP_GRAPH.
 * @param graph Out: the graph. The caller owns it and destroys it with plinth_graph_destroy.
 * @return As plinth_graph_create; PLINTH_ERROR_INVALID_VALUE for other flags.
 */
PLINTH_API
plinth_status_t plinth_graph_create_with_options(uint32_t flags,
                                                 plinth_graph_t *graph)
PLINTH_NOEXCEPT;

/**
 * Destroys a graph, as plinth_graph_reset leaves it. Thread-safe, but a graph must not be destroyed while another thread
 * is in a call with it.
 *
 * @param graph The graph; NULL does nothing.
 * @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD and PLINTH_ERROR_DRIVER as
 *         plinth_graph_reset: the graph stays, and can be destroyed again.
 */
PLINTH_API
plinth_status_t plinth_graph_destroy(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Makes a graph new, so that another capture can begin. A replay that runs finishes; the pool's memory that was this
 * graph's alone goes back to the driver behind it, and the call waits only where that memory is not mapped
 * (expandable_segments:False). What the program has allocated in captures stays valid until the program frees it. A capture
 * that goes on is ended and thrown away.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_WRONG_THREAD for a
 *         capture that is not relaxed and was begun by another thread: it goes on; PLINTH_ERROR_DRIVER where the driver
 *         does not take its objects back: the call can be made again.
 */
PLINTH_API
plinth_status_t plinth_graph_reset(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Begins to capture a graph in the calling thread's current stream: work that is given to the stream from now on, and to
 * streams that wait for it, is not done, but becomes nodes of the graph. Memory that these streams ask for comes from the
 * graph's pool. Random fills take numbers that each replay decides, from the device's own generator and from those that
 * were registered.
 *
 * A call that would make the capture invalid, such as synchronizing, fails with PLINTH_ERROR_CAPTURE_FORBIDS and names
 * the driver's call; the capture is invalid then, and its end says so.
 *
 * @param graph The graph, which is new or was reset.
 * @param pool The pool, from plinth_graph_pool_handle, plinth_graph_pool or plinth_mem_pool_create; NULL or {0, 0} for
 *        one of the graph's own. Graphs that share a pool share its memory: one that was captured later may use what an
 *        earlier one had freed, and is replayed after it.
 * @param mode PLINTH_CAPTURE_GLOBAL, _THREAD_LOCAL or _RELAXED.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         mode, for a pool with two numbers, and for a pool that another capture or a begin of the program's uses at the
 *         moment; PLINTH_ERROR_GRAPH_CAPTURED and PLINTH_ERROR_GRAPH_CAPTURING for a graph that is not new;
 *         PLINTH_ERROR_GRAPH_DEFAULT_STREAM; PLINTH_ERROR_CAPTURE_FORBIDS where the stream captures already;
 *         PLINTH_ERROR_GRAPH_ASLEEP for a pool that sleeps; PLINTH_ERROR_DEVICE_MISMATCH for a registered generator of
 *         another device; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization. After an error
 *         nothing is being captured.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_begin(plinth_graph_t graph,
                                           const plinth_pool_id_t *pool,
                                           int32_t mode)
PLINTH_NOEXCEPT;

/**
 * Ends a capture, in the stream that it began in, which must be the current one. The graph can be replayed then, unless
 * it was made with PLINTH_GRAPH_KEEP_GRAPH: then plinth_graph_instantiate comes first, or the first replay does that.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURING;
 *         PLINTH_ERROR_GRAPH_WRONG_STREAM, and PLINTH_ERROR_GRAPH_WRONG_THREAD for a capture that is not relaxed: it goes
 *         on, and can be ended where it began. After any other error the graph is new, the stream captures no more, and
 *         what was allocated in the capture stays the program's: PLINTH_ERROR_CAPTURE_INVALIDATED after a call that the
 *         capture forbade; PLINTH_ERROR_GRAPH_UNJOINED; PLINTH_ERROR_GRAPH_EMPTY; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_capture_end(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Makes a graph ready that was made with PLINTH_GRAPH_KEEP_GRAPH; again, if its nodes were changed by the program's own
 * calls of the driver.
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
 * Brings a graph to its device, in the calling thread's current stream there, so that the first replay need not. Calls
 * plinth_graph_instantiate where that was not done.
 *
 * @param graph The graph.
 * @return As plinth_graph_instantiate, but any graph may be uploaded; PLINTH_ERROR_CAPTURE_FORBIDS.
 */
PLINTH_API
plinth_status_t plinth_graph_upload(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Replays a graph: its work is given, as a whole, to the calling thread's current stream on the graph's device, the
 * default stream or any other. Returns before it is done. Generators that the graph uses are advanced as the same calls
 * without a graph would have advanced them.
 *
 * Graphs of one pool never run at once: a replay in another stream than the pool's last one is made to wait for it on the
 * device, or refused; see plinth_graph_set_overlap_policy. Within one stream they run in the order of their replays, which
 * should be that of their captures where one reads what the other leaves.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_GRAPH_OVERLAP;
 *         PLINTH_ERROR_CAPTURE_FORBIDS where the current stream is capturing; PLINTH_ERROR_OUT_OF_MEMORY;
 *         PLINTH_ERROR_DRIVER. After an error nothing was launched and no random numbers were taken.
 */
PLINTH_API
plinth_status_t plinth_graph_replay(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Says what happens when a graph is replayed in one stream while another replay of its pool, its own or another graph's,
 * still runs in another stream. The graphs may use the same memory, so the replays must not overlap. Thread-safe.
 *
 * @param graph The graph whose replays this is about.
 * @param policy PLINTH_GRAPH_OVERLAP_ORDER, which is what happens unless this is called, or PLINTH_GRAPH_OVERLAP_REFUSE.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
 *         policy.
 */
PLINTH_API
plinth_status_t plinth_graph_set_overlap_policy(plinth_graph_t graph,
                                                int32_t policy)
PLINTH_NOEXCEPT;

/**
 * Lets the captures of a graph use a generator beside the device's own, which always may. Call it before the capture. The
 * graph holds on to the generator's state, also when the generator is destroyed.
 *
 * @param graph The graph, which is new or was reset; it remembers its generators over a reset.
 * @param generator The generator, of the device that will be captured; NULL for the device's own.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL graph; PLINTH_ERROR_INVALID_HANDLE;
 *         PLINTH_ERROR_GRAPH_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING.
 */
PLINTH_API
plinth_status_t plinth_graph_register_generator_state(plinth_graph_t graph,
                                                      plinth_generator_t generator)
PLINTH_NOEXCEPT;

/**
 * Gives a name for a pool that graphs are to share: none that any pool has. It takes no memory. Thread-safe.
 *
 * @param pool Out: the name. The pool lives as long as graphs use it.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
 */
PLINTH_API plinth_status_t plinth_graph_pool_handle(plinth_pool_id_t *pool) PLINTH_NOEXCEPT;

/**
 * Tells the pool of a graph that is captured or being captured.
 *
 * @param graph The graph.
 * @param pool Out: its name.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API plinth_status_t plinth_graph_pool(plinth_graph_t graph, plinth_pool_id_t *pool) PLINTH_NOEXCEPT;

/**
 * Tells how much memory the pool of a graph has, on all devices, for whichever graphs share it.
 *
 * @param graph The graph, captured or being captured.
 * @param allocated Out: bytes in the program's hands: what captures allocated and nobody has freed.
 * @param held Out: physical bytes that are held for the pool; 0 while it sleeps.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API
plinth_status_t plinth_graph_memory(plinth_graph_t graph,
                                    size_t *allocated,
                                    size_t *held)
PLINTH_NOEXCEPT;

/**
 * Gives the physical memory of a graph's pool back to the driver and keeps the addresses. Waits for all work of the
 * devices first. The contents are lost, those of inputs and outputs that captures allocated in the pool too; whatever a
 * replay reads and does not write itself has to be written again after plinth_graph_wake. Every graph of the pool sleeps,
 * and is refused with PLINTH_ERROR_GRAPH_ASLEEP until it is woken; blocks of the pool can be freed meanwhile, and must not
 * be touched. Does nothing to a pool that sleeps.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_MEMORY_IN_USE while requests go to the pool, and for a pool
 *         with allocated blocks that served others than captures, whose blocks could be anybody's;
 *         PLINTH_ERROR_NOT_SUPPORTED for memory that is not mapped (expandable_segments:False) and for that of an
 *         allocator of the program's own; PLINTH_ERROR_CAPTURE_FORBIDS while a stream captures, which the question does
 *         not disturb; PLINTH_ERROR_WOULD_SYNCHRONIZE;
 *         PLINTH_ERROR_DRIVER: what did not go yet goes with the next call, and the pool sleeps if any went.
 */
PLINTH_API
plinth_status_t plinth_graph_sleep(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Gives a graph's pool physical memory again, at the addresses that it had. What it holds is not defined. Does nothing to
 * a pool that does not sleep.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_OUT_OF_MEMORY and PLINTH_ERROR_DRIVER: the pool sleeps on.
 */
PLINTH_API
plinth_status_t plinth_graph_wake(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Tells whether a graph's pool sleeps.
 *
 * @param graph The graph, captured or being captured.
 * @param asleep Out: whether it does.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED.
 */
PLINTH_API plinth_status_t plinth_graph_is_asleep(plinth_graph_t graph, bool *asleep) PLINTH_NOEXCEPT;

/**
 * Lets a graph keep its nodes after the end of the capture, for plinth_graph_debug_dump and plinth_graph_summary. To be
 * called before that end.
 *
 * @param graph The graph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
 */
PLINTH_API
plinth_status_t plinth_graph_enable_debug_mode(plinth_graph_t graph)
PLINTH_NOEXCEPT;

/**
 * Draws a graph into a file in the language of Graphviz: `dot -Tsvg FILE` makes a picture of it. Can be called again, which
 * torch's cannot.
 *
 * @param graph The graph, which kept its nodes.
 * @param path The file, which is made anew.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT without PLINTH_GRAPH_KEEP_GRAPH and plinth_graph_enable_debug_mode;
 *         PLINTH_ERROR_DRIVER where the file cannot be written.
 */
PLINTH_API
plinth_status_t plinth_graph_debug_dump(plinth_graph_t graph,
                                        const char *path)
PLINTH_NOEXCEPT;

/**
 * Describes a graph's nodes, ready to be drawn: a line of names, then a line for each node, with tabs between its number,
 * its layer (the length of the longest way to it), its place in the layer, its type, what it does, and the numbers of the
 * nodes that it waits for, with commas between them.
 *
 * @param graph The graph, which kept its nodes.
 * @param text Out: the text; the caller frees it with plinth_string_free.
 * @return As plinth_graph_debug_dump.
 */
PLINTH_API
plinth_status_t plinth_graph_summary(plinth_graph_t graph,
                                     char **text)
PLINTH_NOEXCEPT;

/**
 * Gives the CUgraph of a graph that kept its nodes, for the program's own calls of the driver: torch's raw_cuda_graph. It
 * stays the library's, and lives until the graph is reset or destroyed.
 *
 * @param graph The graph.
 * @param native Out: the CUgraph.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED;
 *         PLINTH_ERROR_GRAPH_NOT_KEPT.
 */
PLINTH_API
plinth_status_t plinth_graph_native(plinth_graph_t graph,
                                    void **native)
PLINTH_NOEXCEPT;

/**
 * Gives the CUgraphExec of a graph that is instantiated: torch's raw_cuda_graph_exec. It stays the library's, and lives
 * until the graph is instantiated anew, reset or destroyed. Who launches it himself answers for its generators, which are
 * not advanced, and for replays that overlap.
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
 * Lets the replays of a graph from now on do what another graph does, without instantiating it: much cheaper, and possible
 * where both have the same nodes and edges and differ in parameters. The graph has the other's memory and generators then,
 * beside it. What its replays had before goes on to the end; the memory that was its own goes back behind that.
 *
 * @param graph The graph.
 * @param other A graph of the same device that kept its nodes. It stays as it is.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for the same
 *         graph; PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_NOT_KEPT; PLINTH_ERROR_DEVICE_MISMATCH;
 *         PLINTH_ERROR_GRAPH_UPDATE_REFUSED, with the reason and the node in the message: the graph is as it was, and
 *         capturing it anew is the other way; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_update(plinth_graph_t graph,
                                    plinth_graph_t other)
PLINTH_NOEXCEPT;

/**
 * As plinth_graph_update, to a CUgraph of the program's. The graph keeps its memory and its generators.
 *
 * @param graph The graph.
 * @param native The CUgraph, which stays the program's.
 * @return As plinth_graph_update.
 */
PLINTH_API plinth_status_t plinth_graph_update_native(plinth_graph_t graph, void *native) PLINTH_NOEXCEPT;

/**
 * Copies a graph that kept its nodes. Both share their memory and their generators, which stay until both are gone, so
 * their replays do not overlap. The copy keeps its nodes and is not instantiated.
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
 * Begins a capture as a block of a program, as `with torch.cuda.graph(...)` does: waits for the stream's device, gives
 * cached memory back, makes the stream and its device current, and begins to capture. plinth_graph_end ends the block.
 *
 * @param graph The graph, which is new or was reset.
 * @param pool As in plinth_graph_capture_begin.
 * @param stream The stream; NULL for one that the library keeps for captures on the current device.
 * @param mode As in plinth_graph_capture_begin.
 * @param context Out: what plinth_graph_end needs.
 * @return As plinth_graph_capture_begin; PLINTH_ERROR_WOULD_SYNCHRONIZE. After an error the current stream and device are
 *         what they were.
 */
PLINTH_API
plinth_status_t plinth_graph_begin(plinth_graph_t graph,
                                   const plinth_pool_id_t *pool,
                                   plinth_stream_t stream,
                                   int32_t mode,
                                   struct plinth_graph_context_t *context)
PLINTH_NOEXCEPT;

/**
 * Ends what plinth_graph_begin began, in the thread that began it: ends the capture, and makes current what was current
 * before, whatever comes of the capture.
 *
 * A block that failed is ended with its error: the capture is thrown away, the graph is new, and the call returns that
 * error, with the message of the thread's last call if that was the one that failed with it.
 *
 * @param context What plinth_graph_begin filled.
 * @param body What the block came to: PLINTH_OK to keep the capture, or the status of the call that failed in it.
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
 * How long a node of a graph takes, alone on its device.
 */
typedef struct plinth_node_time_t {
  /**
   * The node.
   */
  plinth_graph_node_t node;
  /**
   * One of PLINTH_GRAPH_NODE_....
   */
  uint32_t node_type;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * The median of its times, in microseconds.
   */
  double microseconds;
  /**
   * What it does: a kernel's name and launch, a copy's addresses. Cut off where it is longer.
   */
  char what[128];
} plinth_node_time_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Measures how long each node of a graph takes. The nodes of a copy of the graph run one after the other, with the recording of
 * an event before, between and behind them, in the current stream of the graph's device; this is waited for.
 *
 * They really run: once and then `repeats` times, as by so many replays, with all that this does to the program's memory,
 * random generators and events, and with its host functions. And nothing overlaps: nodes that a replay runs at the same
 * time are timed alone, and the sum of the times can be more than a replay takes. Each time has in it what an event costs,
 * about a microsecond on a GPU. A child graph is one node.
 *
 * @param graph The graph, which kept its nodes, and has no conditional ones.
 * @param repeats How many times; 1 to 10000. A node's time is the median.
 * @param times Out: the times, in the order in which the nodes ran; NULL to ask for the count only, which still measures.
 * @param count In: for how many there is room; out: how many nodes there are. If they are more, only as many as fit are
 *        written.
 * @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for count; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
 *         repeats, for the body of a conditional node, and for nodes that wait for each other in a circle;
 *         PLINTH_ERROR_GRAPH_NOT_CAPTURED; PLINTH_ERROR_GRAPH_CAPTURING; PLINTH_ERROR_GRAPH_NOT_KEPT;
 *         PLINTH_ERROR_NOT_SUPPORTED with conditional nodes; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_GRAPH_ASLEEP;
 *         PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER.
 */
PLINTH_API
plinth_status_t plinth_graph_node_times(plinth_graph_t graph,
                                        uint32_t repeats,
                                        struct plinth_node_time_t *times,
                                        size_t *count)
PLINTH_NOEXCEPT;

/**
 * Does the same as plinth_graph_node_times, and gives a table: a line of names, a line for each node with tabs between its time in
 * microseconds, its type and what it does, and a line with the sum.
 *
 * @param graph As in plinth_graph_node_times.
 * @param repeats As in plinth_graph_node_times.
 * @param text Out: the table; the caller frees it with plinth_string_free.
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
