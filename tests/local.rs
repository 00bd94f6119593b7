//! Collectives over ranks of one process, each rank a device: every call, in one stream and in all, in place and not,
//! compared with reference results. Runs on the kind of device that PLINTH_DEVICE names, by default the host device.

use plinth::internal::{
    collectives::devices::{
        ReduceOp,
        local::{self, RankOperands},
        tuning::Threshold,
    },
    memory,
    ops::copy,
    runtime::{self, DeviceKind, device, tensor::ElementType},
    stream,
};
use plinth_driver::{Span, status::Status};
use std::{
    process::Command,
    sync::{Mutex, MutexGuard, Once},
};

static SETUP: Once = Once::new();
/// The thresholds are global, so the tests run one after the other.
static SERIAL: Mutex<()> = Mutex::new(());

/// Returns the number of ranks.
fn ranks() -> (usize, MutexGuard<'static, ()>) {
    let guard = SERIAL.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    SETUP.call_once(|| {
        if std::env::var_os("PLINTH_DEVICE").is_none() {
            runtime::choose_kind(DeviceKind::Host).unwrap();
        }
    });
    (device::count().unwrap().min(4), guard)
}

/// Makes all streams execute collectives, or one.
fn split_among_all(on: bool) {
    for threshold in [Threshold::BroadcastSplit, Threshold::ReduceSplit, Threshold::ExchangeSplit] {
        threshold.set(if on { 1 } else { 1 << 40 }).unwrap();
    }
}

/// Memory of a rank, followed by a guard value.
struct Buffer {
    address: u64,
    count: usize,
}

const GUARD: f32 = -77.0;

impl Buffer {
    fn new(rank: usize, values: &[f32]) -> Buffer {
        let stream = stream::current_on(runtime::ready().unwrap(), rank as u32).unwrap();
        let bytes = (values.len() as u64 + 1) * 4;
        let address = memory::caching_alloc(bytes, rank as i32, stream.raw).unwrap();
        let buffer = Buffer { address, count: values.len() };
        let all: Vec<f32> = values.iter().copied().chain([GUARD]).collect();
        // SAFETY: the vector and the block have the same length, and outlive the copy, for which this waits.
        let (to, from) =
            unsafe { (Span::new(address, bytes as usize), Span::new(all.as_ptr() as u64, bytes as usize)) };
        copy::between_current_streams(to, from, false).unwrap();
        buffer
    }

    fn span(&self) -> Span {
        // SAFETY: the block lives until the end of the test that uses it, which waits for the work.
        unsafe { Span::new(self.address, self.count * 4) }
    }

    fn read(&self) -> Vec<f32> {
        let mut all = vec![0.0_f32; self.count + 1];
        // SAFETY: as in `new`.
        let (from, to) =
            unsafe { (Span::new(self.address, all.len() * 4), Span::new(all.as_mut_ptr() as u64, all.len() * 4)) };
        copy::between_current_streams(to, from, false).unwrap();
        assert_eq!(all.pop(), Some(GUARD), "memory behind the buffer was overwritten");
        all
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = memory::caching_free(self.address);
    }
}

/// Returns the source of a rank: small integers, so that sums are exact in any order.
fn source_values(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 7 + rank * 13 + 3) % 11) as f32 - 5.0).collect()
}

fn parts(from: &[Buffer], to: &[Buffer]) -> Vec<RankOperands> {
    let runtime = runtime::ready().unwrap();
    (0..from.len())
        .map(|rank| RankOperands {
            device: rank as u32,
            stream: stream::current_on(runtime, rank as u32).unwrap(),
            from: from[rank].span(),
            to: to[rank].span(),
        })
        .collect()
}

fn wait() {
    (0..device::count().unwrap()).for_each(|device| stream::synchronize_device(device as i32).unwrap());
}

/// Returns the reduction of all ranks' elements.
fn reduced(op: ReduceOp, ranks: usize, count: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| source_values(rank, count)).collect();
    let combine = |index: usize| {
        let values = all.iter().map(|values| values[index]);
        match op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Product => values.product(),
            ReduceOp::Minimum => values.fold(f32::INFINITY, f32::min),
            ReduceOp::Maximum => values.fold(f32::NEG_INFINITY, f32::max),
            ReduceOp::Average => values.sum::<f32>() / ranks as f32,
        }
    };
    (0..count).map(combine).collect()
}

const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Minimum, ReduceOp::Maximum, ReduceOp::Average];
const COUNTS: [usize; 5] = [0, 1, 63, 1000, 30_001];

/// Runs a body with each count, in one stream and in all.
fn each_way(body: impl Fn(usize, usize)) {
    let (ranks, _guard) = ranks();
    for shared in [false, true] {
        split_among_all(shared);
        for count in COUNTS {
            body(ranks, count);
        }
    }
}

fn buffers(ranks: usize, of: impl Fn(usize) -> Vec<f32>) -> Vec<Buffer> {
    (0..ranks).map(|rank| Buffer::new(rank, &of(rank))).collect()
}

/// Runs these tests again with four ranks, in another process, because the host device has two by default.
#[test]
fn with_four_ranks() {
    if std::env::var_os("PLINTH_HOST_DEVICES").is_some() || std::env::var_os("PLINTH_DEVICE").is_some() {
        return;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.env("PLINTH_HOST_DEVICES", "4").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn all_reduce() {
    each_way(|ranks, count| {
        for op in OPS {
            let (from, to) = (buffers(ranks, |rank| source_values(rank, count)), buffers(ranks, |_| vec![0.0; count]));
            local::all_reduce(&parts(&from, &to), count as u64, ElementType::F32, op).unwrap();
            local::all_reduce(&parts(&from, &from), count as u64, ElementType::F32, op).unwrap();
            wait();
            for buffer in from.iter().chain(&to) {
                assert_eq!(buffer.read(), reduced(op, ranks, count), "{op:?} of {count}");
            }
        }
    });
}

#[test]
fn reduce() {
    each_way(|ranks, count| {
        for root in 0..ranks {
            let from = buffers(ranks, |rank| source_values(rank, count));
            let to = buffers(ranks, |_| vec![1.5; count]);
            local::reduce(&parts(&from, &to), root, count as u64, ElementType::F32, ReduceOp::Sum).unwrap();
            wait();
            for (rank, buffer) in to.iter().enumerate() {
                let expected = if rank == root { reduced(ReduceOp::Sum, ranks, count) } else { vec![1.5; count] };
                assert_eq!(buffer.read(), expected);
                assert_eq!(from[rank].read(), source_values(rank, count));
            }
            local::reduce(&parts(&from, &from), root, count as u64, ElementType::F32, ReduceOp::Maximum).unwrap();
            wait();
            assert_eq!(from[root].read(), reduced(ReduceOp::Maximum, ranks, count));
        }
    });
}

#[test]
fn broadcast() {
    each_way(|ranks, count| {
        for root in 0..ranks {
            let from = buffers(ranks, |rank| source_values(rank, count));
            let to = buffers(ranks, |_| vec![0.0; count]);
            local::broadcast(&parts(&from, &to), root, count as u64, ElementType::F32).unwrap();
            wait();
            to.iter().for_each(|buffer| assert_eq!(buffer.read(), source_values(root, count)));
            local::broadcast(&parts(&from, &from), root, count as u64, ElementType::F32).unwrap();
            wait();
            from.iter().for_each(|buffer| assert_eq!(buffer.read(), source_values(root, count)));
        }
    });
}

#[test]
fn all_gather() {
    each_way(|ranks, count| {
        let from = buffers(ranks, |rank| source_values(rank, count));
        let to = buffers(ranks, |_| vec![0.0; count * ranks]);
        local::all_gather(&parts(&from, &to), count as u64, ElementType::F32).unwrap();
        wait();
        let expected: Vec<f32> = (0..ranks).flat_map(|rank| source_values(rank, count)).collect();
        to.iter().for_each(|buffer| assert_eq!(buffer.read(), expected));
        // In place: each rank's source is its own chunk of its destination.
        let initial = |rank: usize| {
            let mut own = vec![0.0; count * ranks];
            own[rank * count..(rank + 1) * count].copy_from_slice(&source_values(rank, count));
            own
        };
        let whole = buffers(ranks, initial);
        let mut inside = parts(&whole, &whole);
        for (rank, part) in inside.iter_mut().enumerate() {
            part.from = part.to.part(rank * count * 4, count * 4);
        }
        local::all_gather(&inside, count as u64, ElementType::F32).unwrap();
        wait();
        whole.iter().for_each(|buffer| assert_eq!(buffer.read(), expected));
    });
}

#[test]
fn reduce_scatter() {
    each_way(|ranks, count| {
        for op in OPS {
            let from = buffers(ranks, |rank| source_values(rank, count * ranks));
            let to = buffers(ranks, |_| vec![0.0; count]);
            local::reduce_scatter(&parts(&from, &to), count as u64, ElementType::F32, op).unwrap();
            wait();
            let all = reduced(op, ranks, count * ranks);
            for (rank, buffer) in to.iter().enumerate() {
                assert_eq!(buffer.read(), all[rank * count..(rank + 1) * count]);
            }
        }
    });
}

#[test]
fn all_to_all() {
    each_way(|ranks, count| {
        let from = buffers(ranks, |rank| source_values(rank, count * ranks));
        let to = buffers(ranks, |_| vec![0.0; count * ranks]);
        local::all_to_all(&parts(&from, &to), count as u64, ElementType::F32).unwrap();
        wait();
        for (rank, buffer) in to.iter().enumerate() {
            let part = |other: usize| source_values(other, count * ranks)[rank * count..(rank + 1) * count].to_vec();
            assert_eq!(buffer.read(), (0..ranks).flat_map(part).collect::<Vec<f32>>());
        }
    });
}

#[test]
fn invalid_calls_are_rejected() {
    let (ranks, _guard) = ranks();
    let buffers = buffers(ranks, |rank| source_values(rank, 8));
    let mut both = parts(&buffers, &buffers);
    let sum = |parts: &[RankOperands], element| {
        local::all_reduce(parts, 2, element, ReduceOp::Minimum).map_err(|e| e.status())
    };
    assert_eq!(sum(&both, ElementType::Complex64), Err(Status::NOT_SUPPORTED));
    assert_eq!(
        local::reduce(&both, ranks, 2, ElementType::F32, ReduceOp::Sum).unwrap_err().status(),
        Status::INVALID_VALUE
    );
    assert!(local::broadcast(&both, 0, u64::MAX / 2, ElementType::F32).is_err());
    if ranks > 1 {
        let error = local::all_to_all(&both, 1, ElementType::F32).unwrap_err();
        assert!(error.message().contains("cannot be in place"));
        both[1].device = 0;
        assert_eq!(sum(&both, ElementType::F32), Err(Status::DEVICE_MISMATCH));
        both[1].stream = both[0].stream;
        assert_eq!(sum(&both, ElementType::F32), Err(Status::INVALID_VALUE));
    }
    wait();
}
