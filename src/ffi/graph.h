/*! A node of a graph: the same type as cudaGraphNode_t and CUgraphNode. */
typedef struct CUgraphNode_st *plinth_graph_node_t;
