//! Plans: leases and execution.

use super::{
    cache,
    params::{Params, Transform},
};
use crate::{
    base::{
        handle::{Kind, ReferenceTable},
        retry::retry,
    },
    driver::{
        Span,
        cufft::{self, Cufft, NativePlan},
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    observe,
    runtime::{self, Runtime, device::Device, tensor::ElementType, thread},
    status::Status,
    stream::{
        self,
        capture_scope::{self, CaptureResource},
    },
};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Forward transform, from a signal to its frequencies.
pub const FORWARD: i32 = -1;
/// Inverse transform, without division by the size.
pub const INVERSE: i32 = 1;

/// A cuFFT plan. It is destroyed when the cache, the program's handles and all graphs have dropped it.
pub struct Plan {
    library: &'static Cufft,
    native: NativePlan,
    device: u32,
    params: Params,
    /// The bytes of its work area.
    work: usize,
    lease: Mutex<Option<Lease>>,
    returned: Condvar,
}

impl CaptureResource for Plan {}

/// A thread's exclusive use of a plan.
struct Lease {
    thread: u64,
    /// The handle by which the program acquired it, if it did.
    handle: Option<u64>,
    /// The plan's work area during the lease.
    area: Option<Scratch>,
}

static PLANS: ReferenceTable<Arc<Plan>> = ReferenceTable::new(Kind::FftPlan);

/// Returns a plan for a device, new or from the cache, as a handle.
pub fn get(params: &Params, device: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let library = cufft::LIBRARY.get_for(&runtime.driver)?;
    let device = runtime.device(device)?;
    let plan = cache::find(device.ordinal, params, || make(runtime, library, device, params))?;
    PLANS.insert(plan)
}

fn make(runtime: &Runtime, library: &'static Cufft, device: &Device, params: &Params) -> Result<Plan> {
    let driver = &runtime.driver;
    if params.number() == ElementType::F16 {
        let properties = device.properties(driver)?;
        if (properties.major, properties.minor) < (5, 3) {
            return Err(Error::new(
                Status::NOT_SUPPORTED,
                format!(
                    "cuFFT doesn't support signals of half type with compute capability less than SM_53, but the device \
                     only has SM_{}{}",
                    properties.major, properties.minor
                ),
            ));
        }
    }
    let shape = params.shape()?;
    let made = device.with_context(driver, |driver| driver.with_relaxed_capture(|| library.plan(&shape))?);
    let (native, work) = made.context(|| format!("making a plan of transforms on device {}", device.ordinal))?;
    Ok(Plan {
        library,
        native,
        device: device.ordinal,
        params: *params,
        work,
        lease: Mutex::new(None),
        returned: Condvar::new(),
    })
}

impl Drop for Plan {
    fn drop(&mut self) {
        // In the child of a fork and in an exiting process, the operating system frees it.
        let Some(runtime) = runtime::usable() else { return };
        let Ok(device) = runtime.device(self.device as i32) else { return };
        // The plan's memory is freed as the driver frees memory, after all work of the device.
        retry(|| {
            device.with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| self.library.destroy(self.native))?
            })
        });
    }
}

/// Destroys a handle. Work in a stream is still executed. Fails while a thread has acquired the plan by this handle:
/// without the handle the plan could not be released, and all other threads would wait forever.
pub fn forget(handle: u64) -> Result<()> {
    if PLANS.get(handle)?.lease.lock().as_ref().is_some_and(|lease| lease.handle == Some(handle)) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "a thread has acquired the plan by this handle; plinth_cufft_plan_release comes first",
        ));
    }
    PLANS.remove(handle).map(drop)
}

/// Executes a plan in the thread's current stream on the plan's device.
pub fn execute(handle: u64, input: Span, output: Span, direction: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let plan = PLANS.get(handle)?;
    let fits = match plan.params.transform() {
        Transform::ComplexToComplex => direction == FORWARD || direction == INVERSE,
        Transform::RealToComplex => direction == FORWARD,
        Transform::ComplexToReal => direction == INVERSE,
    };
    if !fits {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "{direction} is no direction of this transform: -1 is forward, from real numbers always, and 1 back"
            ),
        ));
    }
    let device = runtime.device(plan.device as i32)?;
    let shared = plan.clone();
    plan.report_to_sanitizer(runtime, input, output)?;
    plan.begin(runtime, device, &shared, None)?;
    let done = device
        .with_context(&runtime.driver, |_| plan.library.execute(plan.native, input, output, direction))
        .context(|| "carrying out a transform");
    plan.end()?;
    done
}

/// Acquires a plan for exclusive use by the calling thread, sets it to the thread's current stream on the plan's
/// device, and gives it a work area. Returns cuFFT's number of the plan.
pub fn acquire(handle: u64) -> Result<i32> {
    let runtime = runtime::ready()?;
    let plan = PLANS.get(handle)?;
    let shared = plan.clone();
    plan.begin(runtime, runtime.device(plan.device as i32)?, &shared, Some(handle))?;
    Ok(plan.native.number())
}

/// Releases the plan that the calling thread has acquired.
pub fn release(handle: u64) -> Result<()> {
    runtime::ready()?;
    PLANS.get(handle)?.end()
}

impl Plan {
    /// Reports to the stream sanitizer what a transform reads and writes. A complex-to-real transform may overwrite its
    /// input.
    fn report_to_sanitizer(&self, runtime: &Runtime, input: Span, output: Span) -> Result<()> {
        if !observe::is_on() {
            return Ok(());
        }
        let stream = stream::current_on(runtime, self.device)?;
        let (from, to) =
            (self.params.tensor(true, input, self.device)?, self.params.tensor(false, output, self.device)?);
        let overwrites_input = self.params.transform() == Transform::ComplexToReal;
        let input = if overwrites_input { observe::Kind::Write } else { observe::Kind::Read };
        observe::access_tensors(runtime, stream, &[(&from, input), (&to, observe::Kind::Write)])
    }

    fn begin(&self, runtime: &Runtime, device: &Device, shared: &Arc<Plan>, handle: Option<u64>) -> Result<()> {
        self.take(handle)?;
        let set = self.set(runtime, device, shared);
        if set.is_err() {
            self.end()?;
        }
        set
    }

    /// Waits until no other thread has the plan, then leases it.
    fn take(&self, handle: Option<u64>) -> Result<()> {
        let me = thread::number();
        let mut lease = self.lease.lock();
        while let Some(other) = &*lease {
            if other.thread == me {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    "this thread has the plan already; plinth_cufft_plan_release comes first",
                ));
            }
            self.returned.wait(&mut lease);
        }
        *lease = Some(Lease { thread: me, handle, area: None });
        Ok(())
    }

    fn set(&self, runtime: &Runtime, device: &Device, shared: &Arc<Plan>) -> Result<()> {
        let stream = stream::current_on(runtime, self.device)?;
        // The graph of a capture keeps the plan, because each replay reads the plan's memory.
        if let Some(capture) = stream::capture_id(runtime, stream)?
            && !capture_scope::add(capture, shared)
        {
            capture_scope::add_to_driver_graph(runtime, stream, capture, shared.clone())?;
        }
        let area = Scratch::alloc(self.work as u64, stream).context(|| "the work area of a transform")?;
        let span = area.memory();
        if let Some(lease) = &mut *self.lease.lock() {
            lease.area = Some(area);
        }
        device.with_context(&runtime.driver, |_| self.library.set(self.native, stream.raw, span))
    }

    fn end(&self) -> Result<()> {
        let mut lease = self.lease.lock();
        if lease.as_ref().is_none_or(|lease| lease.thread != thread::number()) {
            return Err(Error::new(Status::INVALID_VALUE, "this thread does not have the plan"));
        }
        let ended = lease.take();
        drop(lease);
        self.returned.notify_one();
        drop(ended);
        Ok(())
    }
}
