//! Results of every collective, type, operation and kind of size, compared with a reference computed here.

use crate::{
    Scenario,
    rank::{Memory, device_of, in_context, me, new_stream, synchronize},
    run,
    values::{ELEMENTS, OPS, has, reduced, row},
};
use plinth::internal::{
    collectives::{
        devices::ReduceOp,
        processes::{ProcessGroup, Transfer},
    },
    runtime::tensor::ElementType,
    stream::Stream,
};
use plinth_driver::types::CU_STREAM_CAPTURE_MODE_RELAXED;

pub const SCENARIOS: &[Scenario] = &[
    ("each_type", each_type),
    ("each_size", each_size),
    ("in_flight", in_flight),
    ("replays", replays),
    ("exchanges", exchanges),
    ("one_thread", one_thread),
];

/// Small symmetric buffers, so that small messages take several steps.
const SMALL: (&str, &str) = ("PLINTH_GROUP_TUNING", "staging=8192,one_shot=1024,block_bytes=64,entry=256,broadcast=0");

#[test]
fn each_type_and_operation_gives_every_rank_the_same_bits() {
    run("each_type", 2, &[]);
    run("each_type", 4, &[SMALL]);
}

#[test]
fn each_collective_supports_any_size_and_alignment() {
    run("each_size", 1, &[]);
    run("each_size", 2, &[SMALL]);
    run("each_size", 3, &[]);
    run("each_size", 8, &[("PLINTH_GROUP_TUNING", "staging=65536,one_shot=4096,block_bytes=512,broadcast=0")]);
}

#[test]
fn many_calls_are_in_flight_in_several_streams() {
    run("in_flight", 4, &[SMALL]);
}

#[test]
fn a_captured_call_replays_a_thousand_times() {
    run("replays", 3, &[SMALL]);
}

#[test]
fn ranks_send_and_receive_in_any_order() {
    run("exchanges", 4, &[SMALL]);
    run("exchanges", 2, &[]);
}

#[test]
fn one_thread_drives_several_ranks_of_a_process() {
    run("one_thread", 1, &[]);
}

struct Fixture {
    group: ProcessGroup,
    stream: Stream,
    rank: u32,
    size: u32,
}

fn fixture() -> Fixture {
    let me = me();
    Fixture { group: me.join(), stream: new_stream(me.device()), rank: me.rank, size: me.size }
}

impl Fixture {
    fn rows(&self, element: ElementType, count: u64, salt: u64) -> Vec<Vec<u8>> {
        (0..self.size).map(|rank| row(element, rank, count, salt)).collect()
    }

    fn own<'a>(&self, rows: &'a [Vec<u8>]) -> &'a [u8] {
        &rows[self.rank as usize]
    }

    fn check(&self, what: &str, found: &[u8], expected: &[u8]) {
        assert_eq!(self.group.error().map(|error| error.to_string()), None, "{what}");
        if found != expected {
            let at = found.iter().zip(expected).position(|(one, other)| one != other);
            panic!("{what}: rank {} differs at byte {at:?} of {}", self.rank, expected.len());
        }
    }
}

fn each_type() {
    let fixture = fixture();
    let Fixture { group, stream, .. } = &fixture;
    let stream = *stream;
    for (salt, element) in ELEMENTS.into_iter().enumerate() {
        for op in OPS {
            for count in [37, 1500] {
                let rows = fixture.rows(element, count, salt as u64);
                let memory = Memory::of(stream, fixture.own(&rows));
                let done = group.all_reduce(memory.span, memory.span, count, element, op, stream);
                if !has(element, op) {
                    assert_eq!(done.unwrap_err().status(), plinth_driver::status::Status::NOT_SUPPORTED);
                    continue;
                }
                done.unwrap();
                fixture.check(&format!("{op:?} of {element}"), &memory.read(stream), &reduced(element, op, &rows));
            }
        }
    }
}

/// Runs each collective with elements that begin `shift` bytes after the start of the memory.
fn each_collective(fixture: &Fixture, element: ElementType, count: u64, shift: usize) {
    let Fixture { group, stream, rank, size } = fixture;
    let (stream, rank, all) = (*stream, *rank, *size as usize);
    let bytes = (count * element.bytes()) as usize;
    let what = |name: &str| format!("{name} of {count} {element} at {shift}");
    let shifted = |bytes: &[u8]| {
        let memory = Memory::new(stream.device(), bytes.len() + shift);
        memory.write(shift, bytes, stream);
        memory
    };
    let rows = fixture.rows(element, count, 1);
    let wide = fixture.rows(element, count * all as u64, 2);
    let part = |row: &[u8], index: usize| row[index * bytes..(index + 1) * bytes].to_vec();
    let sum = reduced(element, ReduceOp::Sum, &rows);
    let wide_sum = reduced(element, ReduceOp::Sum, &wide);
    let (from, to) = (shifted(fixture.own(&rows)), shifted(&vec![0xEE; bytes]));
    let (wide_from, wide_to) = (shifted(fixture.own(&wide)), shifted(&vec![0xEE; bytes * all]));
    let span = |memory: &Memory, bytes| memory.part(shift, bytes);
    let result = |memory: &Memory| memory.read(stream)[shift..].to_vec();

    group.all_reduce(span(&from, bytes), span(&to, bytes), count, element, ReduceOp::Sum, stream).unwrap();
    fixture.check(&what("all_reduce"), &result(&to), &sum);

    let at = span(&wide_to, bytes * all);
    group.all_gather(span(&from, bytes), at, count, element, stream).unwrap();
    fixture.check(&what("all_gather"), &result(&wide_to), &rows.concat());

    group
        .reduce_scatter(span(&wide_from, bytes * all), span(&to, bytes), count, element, ReduceOp::Sum, stream)
        .unwrap();
    fixture.check(&what("reduce_scatter"), &result(&to), &part(&wide_sum, rank as usize));

    group.all_to_all(span(&wide_from, bytes * all), at, count, element, stream).unwrap();
    let transposed: Vec<u8> = wide.iter().flat_map(|row| part(row, rank as usize)).collect();
    fixture.check(&what("all_to_all"), &result(&wide_to), &transposed);

    for root in [0, all as u32 - 1] {
        let is_root = rank == root;
        let before = result(&to);
        group.reduce(span(&from, bytes), span(&to, bytes), count, element, ReduceOp::Sum, root, stream).unwrap();
        fixture.check(&what("reduce"), &result(&to), if is_root { &sum } else { &before });
        group.broadcast(span(&from, bytes), span(&to, bytes), count, element, root, stream).unwrap();
        fixture.check(&what("broadcast"), &result(&to), &rows[root as usize]);
    }

    // In place; the rest of the memory must not change.
    let place = shifted(fixture.own(&wide));
    let own = place.part(shift + rank as usize * bytes, bytes);
    group.reduce_scatter(span(&place, bytes * all), own, count, element, ReduceOp::Sum, stream).unwrap();
    let mut expected = fixture.own(&wide).to_vec();
    expected[rank as usize * bytes..][..bytes].copy_from_slice(&part(&wide_sum, rank as usize));
    fixture.check(&what("reduce_scatter in place"), &result(&place), &expected);
    group.all_gather(own, span(&place, bytes * all), count, element, stream).unwrap();
    fixture.check(&what("all_gather in place"), &result(&place), &wide_sum);
    group.all_to_all(span(&place, bytes * all), span(&place, bytes * all), count, element, stream).unwrap();
    let expected: Vec<u8> = (0..all).flat_map(|_| part(&wide_sum, rank as usize)).collect();
    fixture.check(&what("all_to_all in place"), &result(&place), &expected);
    group.broadcast(span(&place, bytes), span(&place, bytes), count, element, 0, stream).unwrap();
    fixture.check(&what("broadcast in place"), &result(&place)[..bytes], &part(&wide_sum, 0));
}

fn each_size() {
    let fixture = fixture();
    for (element, shift) in [(ElementType::F32, 0), (ElementType::U8, 1), (ElementType::Bf16, 6)] {
        for count in [0, 1, 5, 16, 17, 513, 1024, 4099] {
            each_collective(&fixture, element, count, shift);
        }
    }
    if fixture.size <= 3 {
        each_collective(&fixture, ElementType::F64, 300_001, 8);
    }
}

fn in_flight() {
    let fixture = fixture();
    let Fixture { group, stream, size, .. } = &fixture;
    let streams = [*stream, new_stream(stream.device()), new_stream(stream.device())];
    let count = 700;
    let rows = fixture.rows(ElementType::I32, count, 3);
    let memories: Vec<Memory> = (0..3).map(|_| Memory::of(*stream, fixture.own(&rows))).collect();
    // The streams differ from rank to rank: only the order of the calls matters.
    for turn in 0..240 {
        let memory = &memories[turn % 3];
        let stream = streams[(turn % 3 + fixture.rank as usize) % 3];
        group.all_reduce(memory.span, memory.span, count, ElementType::I32, ReduceOp::Sum, stream).unwrap();
    }
    streams.into_iter().for_each(synchronize);
    let sum = reduced(ElementType::I32, ReduceOp::Sum, &rows);
    let expected: Vec<u8> = sum
        .as_chunks()
        .0
        .iter()
        .flat_map(|word| {
            let mut number = i32::from_le_bytes(*word);
            (0..79).for_each(|_| number = number.wrapping_mul(*size as i32));
            number.to_le_bytes()
        })
        .collect();
    for memory in &memories {
        fixture.check("240 sums", &memory.read(*stream), &expected);
    }
}

fn replays() {
    let fixture = fixture();
    let Fixture { group, stream, rank, size } = &fixture;
    let (stream, size) = (*stream, *size as i32);
    let (count, device) = (600, stream.device());
    let ones = vec![1_i32; count as usize];
    let bytes: Vec<u8> = ones.iter().flat_map(|one| one.to_le_bytes()).collect();
    let (sums, moved) = (Memory::of(stream, &bytes), Memory::of(stream, &bytes));
    let next = (rank + 1) % fixture.size;
    let before = (rank + fixture.size - 1) % fixture.size;
    let (element, op) = (ElementType::I32, ReduceOp::Sum);
    let exec = in_context(device, |runtime| {
        let driver = &runtime.driver;
        driver.stream_begin_capture(stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
        let other = new_stream(device);
        group.all_reduce(sums.span, sums.span, count, element, op, stream).unwrap();
        // Moves to another stream of the capture, and back.
        plinth::internal::stream::make_wait(runtime, other, stream).unwrap();
        group.broadcast(sums.span, moved.span, count, element, 1, other).unwrap();
        let transfers = [
            Transfer { peer: next, sends: true, memory: sums.span, element },
            Transfer { peer: before, sends: false, memory: moved.span, element },
        ];
        group.exchange(&transfers, other).unwrap();
        plinth::internal::stream::make_wait(runtime, stream, other).unwrap();
        let graph = driver.stream_end_capture(stream.raw).unwrap();
        let exec = driver.graph_instantiate(graph, 0).unwrap();
        driver.graph_destroy(graph).unwrap();
        exec
    });
    let mut expected = 1_i32;
    for turn in 0..1000 {
        in_context(device, |runtime| runtime.driver.graph_launch(exec, stream.raw).unwrap());
        expected = expected.wrapping_mul(size);
        if turn % 100 == 50 {
            // Between replays, a call that was not captured.
            group.all_reduce(sums.span, sums.span, count, element, op, stream).unwrap();
            expected = expected.wrapping_mul(size);
        }
    }
    synchronize(stream);
    let all: Vec<u8> = (0..count).flat_map(|_| expected.to_le_bytes()).collect();
    fixture.check("replayed sums", &sums.read(stream), &all);
    in_context(device, |runtime| runtime.driver.graph_exec_destroy(exec).unwrap());
    drop(moved);
}

fn exchanges() {
    let fixture = fixture();
    let Fixture { group, stream, rank, size } = &fixture;
    let (stream, rank, size) = (*stream, *rank, *size);
    let element = ElementType::U8;
    let of = |from: u32, to: u32, count: u64| row(element, from, count, u64::from(to) + 7);
    for count in [0, 1, 255, 256, 5000, 200_001] {
        // From each rank to each rank, itself included, twice, in one call.
        let bytes = count as usize;
        let make = |peer: u32, sends: bool| {
            let data = if sends { of(rank, peer, count) } else { vec![0xEE; bytes] };
            (peer, sends, Memory::of(stream, &data))
        };
        let all: Vec<_> = (0..2 * size).flat_map(|peer| [make(peer % size, true), make(peer % size, false)]).collect();
        let transfers: Vec<Transfer> = all
            .iter()
            .map(|(peer, sends, memory)| Transfer { peer: *peer, sends: *sends, memory: memory.span, element })
            .collect();
        group.exchange(&transfers, stream).unwrap();
        for (peer, sends, memory) in &all {
            if !sends {
                fixture.check(&format!("{count} bytes from {peer}"), &memory.read(stream), &of(*peer, rank, count));
            }
        }
        // Around a ring, one rank after the other; the last rank begins.
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        if size > 1 {
            let token = Memory::of(stream, &of(size - 1, 0, count));
            if rank == size - 1 {
                group.send(token.span, count, element, next, stream).unwrap();
            }
            group.recv(token.span, count, element, before, stream).unwrap();
            if rank != size - 1 {
                group.send(token.span, count, element, next, stream).unwrap();
            }
            fixture.check("a ring", &token.read(stream), &of(size - 1, 0, count));
        }
    }
    let error = group.send(stream_memory(stream).span, 4, element, rank, stream).unwrap_err();
    assert_eq!(error.status(), plinth_driver::status::Status::INVALID_VALUE);
}

fn stream_memory(stream: Stream) -> Memory {
    Memory::new(stream.device(), 16)
}

fn one_thread() {
    let me = me();
    let join = |rank: u32| {
        let id = me.ids[0];
        std::thread::spawn(move || ProcessGroup::join(&id, rank, 3, device_of(rank), crate::rank::SOON).unwrap())
    };
    let joining: Vec<_> = (0..3).map(join).collect();
    let groups: Vec<ProcessGroup> = joining.into_iter().map(|thread| thread.join().unwrap()).collect();
    let streams: Vec<Stream> = (0..3).map(|rank| new_stream(device_of(rank))).collect();
    let count = 50_000;
    let rows: Vec<Vec<u8>> = (0..3).map(|rank| row(ElementType::F32, rank, count, 9)).collect();
    let memories: Vec<Memory> = streams.iter().zip(&rows).map(|(stream, row)| Memory::of(*stream, row)).collect();
    for ((group, stream), memory) in groups.iter().zip(&streams).zip(&memories) {
        group.all_reduce(memory.span, memory.span, count, ElementType::F32, ReduceOp::Sum, *stream).unwrap();
    }
    let expected = reduced(ElementType::F32, ReduceOp::Sum, &rows);
    for (stream, memory) in streams.iter().zip(&memories) {
        assert!(memory.read(*stream) == expected);
    }
}
