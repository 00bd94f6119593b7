//! Plans: who has one, and carrying it out.

use super::{
    cache,
    params::{Params, Transform},
};
use crate::{
    base::handle::{HandleTable, Kind},
    driver::{
        self, Span,
        cufft::{self, Cufft, NativePlan},
        math::not_on_host_device,
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{self, Runtime, device::Device, tensor::ElementType, thread},
    sanitizer,
    status::Status,
    stream::{
        self, Stream,
        capture_resources::{self, Resource},
    },
};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// From a signal to its frequencies.
pub const FORWARD: i32 = -1;
/// Back, without dividing by the size.
pub const INVERSE: i32 = 1;

/// A plan of cuFFT's. It is destroyed when the cache, the program's handles and the graphs have all forgotten it.
pub struct Plan {
    library: &'static Cufft,
    native: NativePlan,
    device: u32,
    params: Params,
    /// The bytes that it needs to work with.
    work: usize,
    lease: Mutex<Option<Lease>>,
    returned: Condvar,
}

/// A thread that has a plan for itself.
struct Lease {
    thread: u64,
    /// The handle by which the program acquired it, if it did.
    handle: Option<u64>,
    /// What the plan works with.
    area: Option<Scratch>,
}

/// A slot of the table of plans.
#[derive(Default)]
pub struct Slot(Mutex<Option<Arc<Plan>>>);

static PLANS: HandleTable<Slot> = HandleTable::new(Kind::FftPlan);

fn library(runtime: &Runtime) -> Result<&'static Cufft> {
    let library = cufft::get()?;
    if runtime.driver.kind() == driver::Kind::Cuda || library.works_on_host_device() {
        return Ok(library);
    }
    Err(not_on_host_device("cuFFT"))
}

/// A plan for a device, new or one that is kept, as a handle.
pub fn get(params: &Params, device: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let library = library(runtime)?;
    let device = runtime.device(device)?;
    let plan = cache::find(device.ordinal, params, || make(runtime, library, device, params))?;
    PLANS.insert(|slot| *slot.0.lock() = Some(plan))
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
        // A child of a fork and an exiting process leave it to the operating system.
        let Some(runtime) = runtime::usable() else { return };
        let Ok(device) = runtime.device(self.device as i32) else { return };
        // Its memory is freed as the driver frees memory, behind everything that the device has to do. A plan that will
        // not go costs some memory.
        let _ = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| self.library.destroy(self.native))?
        });
    }
}

fn plan(handle: u64) -> Result<Arc<Plan>> {
    let plan = PLANS.get(handle)?.0.lock().clone();
    // Another thread may have given it up meanwhile, and its slot may be another plan's.
    PLANS.get(handle)?;
    plan.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the plan is being given up"))
}

/// Gives a handle up. What is in a stream is still carried out. Refused while a thread has the plan by this handle: nobody
/// could give it back without, and everybody else would wait for ever.
pub fn forget(handle: u64) -> Result<()> {
    if plan(handle)?.lease.lock().as_ref().is_some_and(|lease| lease.handle == Some(handle)) {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "a thread has acquired the plan by this handle; plinth_cufft_release_plan comes first",
        ));
    }
    let mut plan = None;
    PLANS.remove(handle, |slot| plan = slot.0.lock().take())?;
    drop(plan);
    Ok(())
}

/// Carries a plan out in the thread's current stream on the plan's device.
pub fn execute(handle: u64, input: Span, output: Span, direction: i32) -> Result<()> {
    let runtime = runtime::ready()?;
    let plan = plan(handle)?;
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
    let kept = plan.clone();
    plan.tell_sanitizer(runtime, input, output)?;
    plan.begin(runtime, device, &kept, None)?;
    let done = device
        .with_context(&runtime.driver, |_| plan.library.execute(plan.native, input, output, direction))
        .context(|| "carrying out a transform");
    plan.end()?;
    done
}

/// Gives the calling thread a plan for itself, set to its current stream on the plan's device, with memory to work
/// with. Returns cuFFT's number of it.
pub fn acquire(handle: u64) -> Result<i32> {
    let runtime = runtime::ready()?;
    let plan = plan(handle)?;
    let kept = plan.clone();
    plan.begin(runtime, runtime.device(plan.device as i32)?, &kept, Some(handle))?;
    Ok(plan.native.number())
}

/// Takes it back from the calling thread.
pub fn release(handle: u64) -> Result<()> {
    runtime::ready()?;
    plan(handle)?.end()
}

impl Plan {
    /// Tells the stream sanitizer what a transform reads and writes. One to real numbers may use up its input.
    fn tell_sanitizer(&self, runtime: &Runtime, input: Span, output: Span) -> Result<()> {
        if !sanitizer::is_on() {
            return Ok(());
        }
        let stream = stream::current_on(runtime, self.device)?;
        let (from, to) =
            (self.params.tensor(true, input, self.device)?, self.params.tensor(false, output, self.device)?);
        let uses_up = self.params.transform() == Transform::ComplexToReal;
        let input = if uses_up { sanitizer::Kind::Write } else { sanitizer::Kind::Read };
        sanitizer::access_tensors(runtime, stream, &[(&from, input), (&to, sanitizer::Kind::Write)])
    }

    fn begin(&self, runtime: &Runtime, device: &Device, kept: &Arc<Plan>, handle: Option<u64>) -> Result<()> {
        self.take(handle)?;
        let set = self.set(runtime, device, kept);
        if set.is_err() {
            self.end()?;
        }
        set
    }

    /// Waits until no other thread has the plan.
    fn take(&self, handle: Option<u64>) -> Result<()> {
        let me = thread::number();
        let mut lease = self.lease.lock();
        while let Some(other) = &*lease {
            if other.thread == me {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    "this thread has the plan already; plinth_cufft_release_plan comes first",
                ));
            }
            self.returned.wait(&mut lease);
        }
        *lease = Some(Lease { thread: me, handle, area: None });
        Ok(())
    }

    fn set(&self, runtime: &Runtime, device: &Device, kept: &Arc<Plan>) -> Result<()> {
        let stream = stream::current_on(runtime, self.device)?;
        Self::stay_for_captures(runtime, stream, kept)?;
        let area = Scratch::alloc(self.work as u64, stream).context(|| "the work area of a transform")?;
        let span = area.memory();
        if let Some(lease) = &mut *self.lease.lock() {
            lease.area = Some(area);
        }
        device.with_context(&runtime.driver, |_| self.library.set(self.native, stream.raw, span))
    }

    /// A graph reads the plan's memory at each replay, so it keeps the plan.
    fn stay_for_captures(runtime: &Runtime, stream: Stream, kept: &Arc<Plan>) -> Result<()> {
        let Some(capture) = stream::capture_id(runtime, stream)? else { return Ok(()) };
        let resource: Resource = kept.clone();
        if capture_resources::add(capture, &resource) {
            Ok(())
        } else {
            capture_resources::attach_to_graph(runtime, stream, capture, resource)
        }
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
