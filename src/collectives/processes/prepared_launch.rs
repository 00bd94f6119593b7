//! A launch that is kept as an executable graph with one kernel: launching the graph takes the host less than half the time of
//! launching the kernel (docs/benchmarks.md), also if the parameters of the kernel are replaced before.

use super::launch_orders::StreamId;
use crate::{
    base::{log, retry::retry},
    driver::{Driver, Graph, GraphExec, GraphNode, group::GroupKernel},
    error::{Context, Result},
    runtime::{self, device::Device},
};

/// The executable graph of the last launch, or none if there was no launch or if the driver has refused to make the graph.
#[derive(Debug, Default)]
pub struct PreparedLaunch {
    graph: Option<KernelGraph>,
    is_refused: bool,
    /// The last stream of which it is known that it has the device's primary context.
    stream: Option<StreamId>,
}

#[derive(Debug)]
struct KernelGraph {
    graph: Graph,
    node: GraphNode,
    exec: GraphExec,
    kernel: GroupKernel,
}

impl PreparedLaunch {
    /// Launches a kernel in a stream that does not capture. Launches of the same value run one after the other.
    pub fn launch(&mut self, driver: &Driver, device: &Device, stream: StreamId, kernel: &GroupKernel) -> Result<()> {
        // In another context, like a green one, the kernel may run on fewer multiprocessors, which a graph does not know.
        if !self.is_refused && self.is_in_primary_context(driver, device, stream)? {
            match self.prepare(driver, device, kernel) {
                Ok(exec) => return Ok(driver.graph_launch(exec, stream.native())?),
                Err(error) => {
                    log::ignore(Err::<(), _>(error), "preparing the launches of a communicator, which take longer now");
                    self.graph = None;
                    self.is_refused = true;
                }
            }
        }
        Ok(driver.launch_group(kernel, stream.native())?)
    }

    fn is_in_primary_context(&mut self, driver: &Driver, device: &Device, stream: StreamId) -> Result<bool> {
        if self.stream.is_some_and(|known| known.is_same_eager(stream)) {
            return Ok(true);
        }
        let is_primary = driver.stream_context(stream.native())? == device.context(driver)?;
        self.stream = is_primary.then_some(stream);
        Ok(is_primary)
    }

    /// Returns the executable graph of a kernel.
    fn prepare(&mut self, driver: &Driver, device: &Device, kernel: &GroupKernel) -> Result<GraphExec> {
        let Some(graph) = &mut self.graph else {
            let made = device.with_context(driver, |driver| KernelGraph::new(driver, kernel))?;
            return Ok(self.graph.insert(made).exec);
        };
        if graph.kernel != *kernel {
            driver.graph_exec_set_group(graph.exec, graph.node, kernel)?;
            graph.kernel = kernel.clone();
        }
        Ok(graph.exec)
    }
}

impl KernelGraph {
    fn new(driver: &Driver, kernel: &GroupKernel) -> Result<KernelGraph> {
        let graph = driver.graph_create()?;
        let make = || {
            let node = driver.graph_add_group(graph, kernel)?;
            let exec = driver.with_relaxed_capture(|| driver.graph_instantiate(graph, 0))??;
            Ok(KernelGraph { graph, node, exec, kernel: kernel.clone() })
        };
        let made: Result<KernelGraph> = make();
        if made.is_err() {
            retry(|| driver.graph_destroy(graph));
        }
        made.context(|| "making a graph of one kernel")
    }
}

impl Drop for KernelGraph {
    /// A launch that runs completes all the same.
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        let destroy = |driver: &Driver| -> Result<()> {
            retry(|| driver.with_relaxed_capture(|| driver.graph_exec_destroy(self.exec))?);
            retry(|| driver.with_relaxed_capture(|| driver.graph_destroy(self.graph))?);
            Ok(())
        };
        log::ignore(runtime.in_any_context(destroy), "destroying the graph of a launch, which stays in memory");
    }
}
