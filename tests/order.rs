//! Compares random programs over streams and events with a model of the required order.
//!
//! The model has a set for each stream: the work items that come before the stream's next item. Recording an event copies
//! the set, waiting for an event adds to it, and the legacy default stream and the blocking streams of its device add to
//! each other. Afterwards, every item must have begun after all items before it ended.
//!
//! The test uses the kind of device that PLINTH_DEVICE names, by default the host device.

use plinth::internal::ffi::{
    device,
    event::{self, plinth_event_t},
    plinth_stream_t,
    status::{PLINTH_OK, plinth_last_error},
    stream, testing, version,
};
use proptest::prelude::*;
use std::{
    collections::BTreeSet,
    ffi::{CStr, c_int, c_uint, c_void},
    ptr,
    sync::{
        Mutex, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A step of a program. Streams and events are numbers, taken modulo the number of streams or events.
#[derive(Debug, Clone)]
enum Step {
    Work { stream: usize, microseconds: u64 },
    Record { event: usize, stream: usize },
    Wait { event: usize, stream: usize },
    WaitStream { stream: usize, other: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<usize>(), 0u64..300).prop_map(|(stream, microseconds)| Step::Work { stream, microseconds }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(event, stream)| Step::Record { event, stream }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(event, stream)| Step::Wait { event, stream }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(stream, other)| Step::WaitStream { stream, other }),
    ]
}

fn must(status: i32) {
    // SAFETY: the text is NUL-terminated and copied at once.
    assert_eq!(status, PLINTH_OK, "{}", unsafe { CStr::from_ptr(plinth_last_error()) }.to_string_lossy());
}

/// One stream of the test.
struct Lane {
    stream: plinth_stream_t,
    device: i32,
    kind: LaneKind,
}

#[derive(PartialEq, Clone, Copy)]
enum LaneKind {
    Pool,
    Blocking,
    Legacy,
}

type CreateStream = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_uint;

/// Creates a stream that synchronizes with the legacy default stream. Only CUDA's own function creates such streams.
fn blocking_stream(device: i32) -> plinth_stream_t {
    let (mut function, mut native, mut known) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: every output is a live local, and the function has the type that cuda.h gives it.
    unsafe {
        must(device::plinth_set_device(device));
        must(testing::plinth_driver_entry_point(c"cuStreamCreateWithPriority".as_ptr(), &mut function));
        let create = std::mem::transmute::<*mut c_void, CreateStream>(function);
        assert_eq!(create(&mut native, 0, 0), 0);
        must(stream::plinth_stream_from_external(native, device, &mut known));
    }
    known
}

/// The streams of the test. They are created once, because the library never destroys streams of its pools. One test uses
/// them at a time.
struct Lanes(Vec<Lane>);

// SAFETY: streams may be used from every thread.
unsafe impl Send for Lanes {}

static LANES: Mutex<Lanes> = Mutex::new(Lanes(Vec::new()));

fn prepare(lanes: &mut Vec<Lane>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut devices = 0;
        // SAFETY: the outputs are live locals.
        unsafe {
            if std::env::var_os("PLINTH_DEVICE").is_none() {
                must(version::plinth_set_device_kind(version::PLINTH_DEVICE_HOST));
            }
            must(device::plinth_device_count(&mut devices));
        }
        for number in 0..devices.min(2) {
            for priority in [0, 0, -1] {
                let mut pooled = ptr::null_mut();
                // SAFETY: the output is a live local.
                must(unsafe { stream::plinth_stream_create(number, priority, &mut pooled) });
                lanes.push(Lane { stream: pooled, device: number, kind: LaneKind::Pool });
            }
            for _ in 0..2 {
                lanes.push(Lane { stream: blocking_stream(number), device: number, kind: LaneKind::Blocking });
            }
            lanes.push(Lane { stream: ptr::null_mut(), device: number, kind: LaneKind::Legacy });
        }
    });
}

static CLOCK: AtomicU64 = AtomicU64::new(0);

struct Work {
    microseconds: u64,
    begun: AtomicU64,
    ended: AtomicU64,
}

unsafe extern "C" fn perform(context: *mut c_void) {
    // SAFETY: the test keeps the work alive until the device is idle.
    let work = unsafe { &*context.cast::<Work>() };
    work.begun.store(CLOCK.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_micros(work.microseconds));
    work.ended.store(CLOCK.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
}

/// Adds the implicit order between the legacy stream and the blocking streams of a device, before work is put into `lane`.
fn impose_legacy_order(lanes: &[Lane], before: &mut [BTreeSet<usize>], lane: usize) {
    let related = |other: &Lane| match lanes[lane].kind {
        LaneKind::Legacy => other.kind == LaneKind::Blocking,
        LaneKind::Blocking => other.kind == LaneKind::Legacy,
        LaneKind::Pool => false,
    };
    for (index, other) in lanes.iter().enumerate() {
        if other.device == lanes[lane].device && related(other) {
            let more = before[index].clone();
            before[lane].extend(more);
        }
    }
}

/// Performs the steps and checks their order. Returns when each work began and ended.
fn run(steps: &[Step]) -> Vec<(u64, u64)> {
    let mut guard = LANES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    prepare(&mut guard.0);
    let lanes = &guard.0;
    let work: Vec<Work> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Work { microseconds, .. } => Some(*microseconds),
            _ => None,
        })
        .map(|microseconds| Work { microseconds, begun: AtomicU64::new(0), ended: AtomicU64::new(0) })
        .collect();
    let mut before = vec![BTreeSet::new(); lanes.len()];
    // An event belongs to the device of its first record, so each event is assigned to a device here.
    let events: Vec<(plinth_event_t, i32)> = (0..4)
        .map(|index| {
            let mut made = ptr::null_mut();
            // SAFETY: the output is a live local.
            must(unsafe { event::plinth_event_create(0, &mut made) });
            (made, index % lanes.last().map_or(1, |lane| lane.device + 1))
        })
        .collect();
    let mut recorded = vec![BTreeSet::new(); events.len()];
    let mut expected = Vec::new();
    for step in steps {
        // SAFETY: streams and events are live, and the work lives until the devices are idle.
        unsafe {
            match *step {
                Step::Work { stream, .. } => {
                    let (lane, number) = (stream % lanes.len(), expected.len());
                    impose_legacy_order(lanes, &mut before, lane);
                    must(device::plinth_set_device(lanes[lane].device));
                    let context = (&raw const work[number]).cast_mut().cast();
                    must(stream::plinth_launch_host_function(lanes[lane].stream, Some(perform), context));
                    expected.push(before[lane].clone());
                    before[lane].insert(number);
                }
                Step::Record { event, stream } => {
                    let (event, lane) = (event % events.len(), stream % lanes.len());
                    if events[event].1 == lanes[lane].device {
                        impose_legacy_order(lanes, &mut before, lane);
                        must(device::plinth_set_device(lanes[lane].device));
                        must(event::plinth_event_record(events[event].0, lanes[lane].stream));
                        recorded[event] = before[lane].clone();
                    }
                }
                Step::Wait { event, stream } => {
                    let (event, lane) = (event % events.len(), stream % lanes.len());
                    must(device::plinth_set_device(lanes[lane].device));
                    must(event::plinth_event_wait(events[event].0, lanes[lane].stream));
                    before[lane].extend(recorded[event].clone());
                }
                Step::WaitStream { stream, other } => {
                    let (lane, other) = (stream % lanes.len(), other % lanes.len());
                    // The legacy stream's handle NULL means that of the current device, so both cannot be legacy streams.
                    if lane != other && lanes[lane].kind != LaneKind::Legacy && lanes[other].kind != LaneKind::Legacy {
                        impose_legacy_order(lanes, &mut before, other);
                        must(stream::plinth_stream_wait_stream(lanes[lane].stream, lanes[other].stream));
                        let more = before[other].clone();
                        before[lane].extend(more);
                    }
                }
            }
        }
    }
    for (made, _) in events {
        // SAFETY: the event is live, and is not used after this.
        must(unsafe { event::plinth_event_destroy(made) });
    }
    for number in 0..=lanes.last().map_or(0, |lane| lane.device) {
        // SAFETY: the call takes a number.
        must(unsafe { device::plinth_synchronize(number) });
    }
    for (number, earlier) in expected.iter().enumerate() {
        let begun = work[number].begun.load(Ordering::SeqCst);
        assert!(begun > 0, "work {number} was never done");
        for &other in earlier {
            let ended = work[other].ended.load(Ordering::SeqCst);
            assert!(ended > 0 && ended < begun, "work {number} began at {begun}, work {other} ended at {ended}");
        }
    }
    work.iter().map(|one| (one.begun.load(Ordering::SeqCst), one.ended.load(Ordering::SeqCst))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn work_runs_in_order(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps);
    }
}

/// Shows that the model can fail: work without an order overlaps.
#[test]
fn unordered_work_overlaps() {
    let steps: Vec<Step> = (0..4).map(|stream| Step::Work { stream, microseconds: 20_000 }).collect();
    // Lanes 0 to 2 are pool streams, and lane 3 is a blocking stream: none of the four waits for another. On a GPU one
    // thread may run the host functions of all streams.
    let intervals = run(&steps);
    if std::env::var("PLINTH_DEVICE").map_or(true, |kind| kind == "host") {
        let overlaps = intervals.windows(2).any(|pair| pair[0].0 < pair[1].1 && pair[1].0 < pair[0].1);
        assert!(overlaps, "{intervals:?}");
    }
}
