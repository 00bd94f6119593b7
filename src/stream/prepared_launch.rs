//! A launch that is kept as an executable graph with one kernel: launching the graph takes the host less than half the time of
//! launching the kernel, or two thirds if the parameters of the kernel are replaced before (docs/benchmarks.md).

use super::stream_id::StreamId;
use crate::{
    base::{
        log::{self, Level},
        retry::retry,
    },
    driver::{Driver, Graph, GraphExec, GraphNode, collective::CollectiveKernel, kernel_call::KernelCall, observer},
    error::{Context, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
};
use parking_lot::Mutex;
use std::time::Duration;

/// The executable graph of the last launch, which holds about 115 KiB of the device's memory. It takes longer to make than some
/// launches of the kernel, so it is made for the fourth.
#[derive(Debug)]
pub struct PreparedLaunch<K> {
    graph: Option<KernelGraph<K>>,
    /// The number of launches until a graph is made; `None` if the driver has refused to make, to change or to launch it.
    left: Option<u32>,
    /// The last stream of which it is known that it has the device's primary context.
    stream: Option<StreamId>,
}

#[derive(Debug)]
struct KernelGraph<K> {
    graph: Graph,
    node: GraphNode,
    exec: GraphExec,
    kernel: K,
}

impl<K> Default for PreparedLaunch<K> {
    fn default() -> Self {
        PreparedLaunch { graph: None, left: Some(3), stream: None }
    }
}

impl<K: KernelCall> PreparedLaunch<K> {
    /// Launches a kernel in a stream that does not capture. Launches of the same value run one after the other.
    pub fn launch(&mut self, driver: &Driver, device: &Device, stream: StreamId, kernel: &K) -> Result<()> {
        // In another context, like a green one, the kernel may run on fewer multiprocessors, which a graph does not know.
        if self.left == Some(0) && self.is_in_primary_context(driver, device, stream) {
            let launch = || Ok(driver.graph_launch(self.prepare(driver, device, kernel)?, stream.native())?);
            // The graph is not the program's. If its launch fails, nothing was launched.
            let launched: Result<()> = observer::run_unobserved(launch);
            let Err(error) = launched else { return Ok(()) };
            log::log(Level::Info, || format!("preparing a launch, which takes longer now: {error}"));
            self.graph = None;
            self.left = None;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(driver.launch_call(kernel, stream.native())?)
    }

    fn is_in_primary_context(&mut self, driver: &Driver, device: &Device, stream: StreamId) -> bool {
        if self.stream.is_some_and(|known| known.is_same_eager(stream)) {
            return true;
        }
        let is_primary = || Ok(driver.stream_context(stream.native())? == device.context(driver)?);
        let is_primary: Result<bool> = is_primary();
        self.stream = matches!(is_primary, Ok(true)).then_some(stream);
        self.stream.is_some()
    }

    /// Returns the executable graph of a kernel.
    fn prepare(&mut self, driver: &Driver, device: &Device, kernel: &K) -> Result<GraphExec> {
        match &mut self.graph {
            Some(graph) if graph.kernel == *kernel => Ok(graph.exec),
            Some(graph) => {
                let set = |driver: &Driver| Ok(driver.graph_exec_set_call(graph.exec, graph.node, kernel)?);
                device.with_some_context(driver, set)?;
                graph.kernel = kernel.clone();
                Ok(graph.exec)
            }
            None => {
                let made = device.with_context(driver, |driver| KernelGraph::new(driver, kernel))?;
                Ok(self.graph.insert(made).exec)
            }
        }
    }
}

/// The prepared launches of the streams of a device that were used last, beginning with the last one.
#[derive(Debug)]
pub struct RecentLaunches<K>(Mutex<Vec<(StreamId, PreparedLaunch<K>)>>);

impl<K> Default for RecentLaunches<K> {
    fn default() -> Self {
        RecentLaunches(Mutex::new(Vec::new()))
    }
}

impl<K: KernelCall> RecentLaunches<K> {
    const MAX_STREAMS: usize = 8;

    /// Launches a kernel. In a capture, and if the driver has no ids of streams, it is launched as such.
    pub fn launch(&self, driver: &Driver, device: &Device, stream: StreamId, kernel: &K) -> Result<()> {
        // A launch may wait for room in its stream, and threads with other streams must not wait for that.
        let recent = if stream.has_id() { self.0.try_lock() } else { None };
        let Some(mut recent) = recent else { return Ok(driver.launch_call(kernel, stream.native())?) };
        let mut evicted = None;
        match recent.iter().position(|(known, _)| known.is_same_eager(stream)) {
            Some(index) => recent[..=index].rotate_right(1),
            None => {
                evicted = if recent.len() == Self::MAX_STREAMS { recent.pop() } else { None };
                recent.insert(0, (stream, PreparedLaunch::default()));
            }
        }
        let launched = recent[0].1.launch(driver, device, stream, kernel);
        drop(recent);
        // Destroyed without the lock.
        drop(evicted);
        launched
    }
}

impl Device {
    /// Returns the recent launches of the kernels for copies and for collectives of one process.
    pub fn recent_launches(&self) -> &'static RecentLaunches<CollectiveKernel> {
        static VALUES: PerDevice<RecentLaunches<CollectiveKernel>> = PerDevice::new();
        VALUES.of(self)
    }
}

/// Destroys the graphs of the recent launches of all devices, except of those where a thread launches for long.
pub fn release_recent(runtime: &Runtime) {
    for device in runtime.devices() {
        let held = device.recent_launches().0.try_lock_for(Duration::from_millis(1));
        let recent = held.map(|mut recent| std::mem::take(&mut *recent));
        // Destroyed without the lock.
        drop(recent);
    }
}

impl<K: KernelCall> KernelGraph<K> {
    fn new(driver: &Driver, kernel: &K) -> Result<Self> {
        let graph = driver.graph_create()?;
        let make = || {
            let node = driver.graph_add_call(graph, kernel)?;
            let exec = driver.with_relaxed_capture(|| driver.graph_instantiate(graph, 0))??;
            Ok(KernelGraph { graph, node, exec, kernel: kernel.clone() })
        };
        let made: Result<Self> = make();
        if made.is_err() {
            retry(|| driver.graph_destroy(graph));
        }
        made.context(|| "making a graph of one kernel")
    }
}

impl<K> Drop for KernelGraph<K> {
    /// A launch that runs completes all the same.
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        let destroy = |driver: &Driver| -> Result<()> {
            retry(|| driver.with_relaxed_capture(|| driver.graph_exec_destroy(self.exec))?);
            retry(|| driver.with_relaxed_capture(|| driver.graph_destroy(self.graph))?);
            Ok(())
        };
        let destroyed = observer::run_unobserved(|| runtime.in_any_context(destroy));
        log::ignore(destroyed, "destroying the graph of a launch, which stays in memory");
    }
}
