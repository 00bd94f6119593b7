//! Many threads, many streams, everything at once.

use super::*;
use crate::driver::{codes::*, host};

/// Numbers that look random and are the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn work(seed: u64) {
    let t = setup((seed % 2) as i32);
    let mut numbers = Numbers(seed);
    let streams: Vec<CUstream> = (0..4).map(|index| new_stream(&t, u32::from(index > 0))).collect();
    let events: Vec<CUevent> = (0..4).map(|_| new_event(&t, 0)).collect();
    let memory: Vec<u64> = (0..4).map(|index| alloc(&t, 4096 << (3 * index))).collect();
    for _ in 0..400 {
        let (stream, event) = (streams[numbers.below(4)], events[numbers.below(4)]);
        match numbers.below(8) {
            0 => ok!(t.cuEventRecord(event, stream)),
            1 => ok!(t.cuStreamWaitEvent(stream, event, 0)),
            2 => ok!(t.cuMemsetD8Async(memory[numbers.below(4)], 1, 4096, stream)),
            3 => ok!(t.cuMemcpyAsync(memory[numbers.below(4)], memory[0], 4096, stream)),
            4 => ok!(t.cuMemsetD32Async(memory[0], 7, 16, std::ptr::null_mut())),
            5 => Log::default().note(&t, stream, 1),
            6 => ok!(t.cuEventSynchronize(event)),
            _ => {
                let pointer = alloc(&t, 1 + numbers.below(3 * MIB));
                ok!(t.cuMemsetD8Async(pointer, 1, 1, stream));
                ok!(t.cuMemFree_v2(pointer));
            }
        }
    }
    for stream in streams {
        ok!(t.cuStreamSynchronize(stream));
        ok!(t.cuStreamDestroy_v2(stream));
    }
    for event in events {
        ok!(t.cuEventDestroy_v2(event));
    }
    for pointer in memory {
        ok!(t.cuMemFree_v2(pointer));
    }
}

#[test]
fn everything_at_once() {
    in_child("stress::everything_at_once", &[], || {
        let before = host::live();
        let threads: Vec<_> = (1..9).map(|seed| std::thread::spawn(move || work(seed))).collect();
        for thread in threads {
            thread.join().expect("the thread ends well");
        }
        let after = host::live();
        assert_eq!((after.streams, after.events), (before.streams, before.events));
        assert_eq!((after.handles, after.mappings, after.reservations), (0, 0, 0));
        assert_eq!(after.device_bytes, [0, 0]);
    });
}

#[test]
fn copies_race_with_unmapping() {
    in_child("stress::copies_race_with_unmapping", &[], || {
        let t = setup(0);
        let (pointer, handle, target) = (reserve(&t, GRANULE), create(&t, 0, GRANULE, 0), alloc(&t, GRANULE));
        let mapper = std::thread::spawn(move || {
            let t = setup(0);
            for _ in 0..300 {
                ok!(t.cuMemMap(pointer, GRANULE, 0, handle, 0));
                ok!(t.cuMemSetAccess(pointer, GRANULE, &access(0, 3), 1));
                std::thread::sleep(Duration::from_micros(300));
                ok!(t.cuMemUnmap(pointer, GRANULE));
            }
        });
        while !mapper.is_finished() {
            // Refused, failed or done, as it happens, but never a crash.
            let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
            let code = match code!(t.cuMemcpyAsync(target, pointer, GRANULE, stream)) {
                0 => code!(t.cuStreamSynchronize(stream)),
                refused => refused,
            };
            assert!(matches!(code, 0 | CUDA_ERROR_ILLEGAL_ADDRESS | CUDA_ERROR_INVALID_VALUE), "{code}");
            ok!(t.cuStreamDestroy_v2(stream));
        }
        mapper.join().expect("the thread ends well");
    });
}
