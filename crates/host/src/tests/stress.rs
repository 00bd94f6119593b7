//! Stress tests with many threads and many streams.

use super::{
    conditional::add_below,
    graph::{Fixture, span},
    graph_exec::{add, word},
    *,
};
use crate::driver::{ConditionalKind, FillNode, Graph, codes::*};

/// Pseudo-random numbers that are the same in every run.
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
fn all_operations_concurrently() {
    in_child("stress::all_operations_concurrently", &[], || {
        let before = crate::live();
        let threads: Vec<_> = (1..9).map(|seed| std::thread::spawn(move || work(seed))).collect();
        for thread in threads {
            thread.join().expect("the thread succeeds");
        }
        let after = crate::live();
        assert_eq!((after.streams, after.events), (before.streams, before.events));
        assert_eq!((after.handles, after.mappings, after.reservations), (0, 0, 0));
        assert_eq!(after.device_bytes, [0, 0]);
    });
}

/// Creates a loop of `rounds` iterations over a graph with branches, and a note at the end.
fn looping(fixture: &Fixture, log: &Log, memory: u64, rounds: u32) -> Graph {
    let (driver, graph) = (&fixture.driver, fixture.graph());
    let condition =
        driver.graph_create_conditional(graph, fixture.context, Some(1)).expect("a condition can be created");
    let zero = FillNode::new(span(memory, 4), 0, 4);
    let first = driver.graph_add_fill(graph, &[], &zero, fixture.context).expect("a fill node can be added");
    let added = driver.graph_add_conditional(graph, &[first], condition, ConditionalKind::While, 1, fixture.context);
    let (node, bodies) = added.expect("a conditional node can be added");
    let step = add(fixture, bodies[0], &[], memory, 1);
    let other = FillNode::new(span(memory + 4, 4), rounds, 4);
    let other = driver.graph_add_fill(bodies[0], &[], &other, fixture.context).expect("a fill node can be added");
    let both = driver.graph_add_empty(bodies[0], &[step, other]).expect("an empty node can be added");
    add_below(fixture, bodies[0], &[both], condition, memory, rounds);
    fixture.note(graph, &[node], log, rounds as usize);
    graph
}

fn graph_work(seed: u64) {
    let (fixture, log, mut numbers) = (super::conditional::fixture(), Log::default(), Numbers(seed));
    let (driver, memory, mut expected) = (&fixture.driver, alloc(&fixture.t, 8), Vec::new());
    let other = driver.stream_create(0).expect("a stream can be created");
    for _ in 0..25 {
        let rounds = 1 + numbers.below(6) as u32;
        let graph = looping(&fixture, &log, memory, rounds);
        let exec = driver.graph_instantiate(graph, 0).expect("the graph is valid");
        driver.graph_launch(exec, fixture.stream).expect("it can be launched");
        // Launches of one executable graph are serialized, in all streams.
        driver.graph_launch(exec, other).expect("it can be launched");
        let more = looping(&fixture, &log, memory, rounds + 10);
        driver.graph_exec_update(exec, more).expect("both are live").expect("they differ in parameters only");
        driver.graph_launch(exec, fixture.stream).expect("it can be launched");
        expected.extend([rounds as usize, rounds as usize, rounds as usize + 10]);
        for graph in [graph, more] {
            driver.graph_destroy(graph).expect("the graph is live");
        }
        driver.graph_exec_destroy(exec).expect("the handle is live");
        driver.stream_synchronize(fixture.stream).expect("the work succeeds");
        assert_eq!((word(&fixture, memory), word(&fixture, memory + 4)), (rounds + 10, rounds + 10));
    }
    assert_eq!(log.entries(), expected);
    fixture.free(memory);
    for stream in [fixture.stream, other] {
        driver.stream_destroy(stream).expect("the handle is live");
    }
}

#[test]
fn graphs_concurrently() {
    in_child("stress::graphs_concurrently", &[], || {
        let before = (setup(0), crate::live()).1;
        let threads: Vec<_> = (1..9).map(|seed| std::thread::spawn(move || graph_work(seed))).collect();
        for thread in threads {
            thread.join().expect("the thread succeeds");
        }
        let after = crate::live();
        assert_eq!((after.streams, after.graphs, after.execs), (before.streams, 0, 0));
        let engine = crate::state::get().expect("it was initialised").engine.lock();
        assert!(engine.streams.is_empty() && engine.nodes.is_empty());
        assert!(engine.conditions.values().all(|condition| condition.strong_count() == 0));
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
            // Refused, failed or complete, but never a crash.
            let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
            let code = match code!(t.cuMemcpyAsync(target, pointer, GRANULE, stream)) {
                0 => code!(t.cuStreamSynchronize(stream)),
                refused => refused,
            };
            if code == CUDA_ERROR_ILLEGAL_ADDRESS {
                break;
            }
            assert!(matches!(code, 0 | CUDA_ERROR_INVALID_VALUE), "{code}");
            ok!(t.cuStreamDestroy_v2(stream));
        }
        mapper.join().expect("the thread succeeds");
    });
}
