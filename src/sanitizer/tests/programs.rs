//! Small programs with their expected findings.

use super::super::{
    call::{Call, Executor, StreamKind},
    library_observer::PendingMoments,
    report::Missing,
    state::State,
    *,
};
use crate::base::stack::StackId;

const A: Stream = stream(0x100);
const B: Stream = stream(0x200);
const C: Stream = stream(0x300);
const DEFAULT: Stream = Stream { device: 0, handle: 0, thread: 0, kind: StreamKind::Default };

const fn stream(handle: usize) -> Stream {
    Stream { device: 0, handle, thread: 0, kind: StreamKind::NonBlocking }
}

fn call(name: &str) -> Call<'_> {
    Call { name, stack: StackId::NONE }
}

/// Adds an operation on 64 bytes.
fn work(state: &mut State, stream: Stream, name: &str, kind: Kind, address: u64) -> Vec<Report> {
    state.operation(Executor::Stream(stream), call(name), &[Operand::new(address, 64, kind)], false)
}

fn read(state: &mut State, stream: Stream, address: u64) -> Vec<Report> {
    work(state, stream, "sum", Kind::Read, address)
}

fn write(state: &mut State, stream: Stream, address: u64) -> Vec<Report> {
    work(state, stream, "normal_", Kind::Write, address)
}

fn cpu(state: &mut State, kind: Kind) -> Vec<Report> {
    state.operation(Executor::Cpu, call("inspect"), &[Operand::new(0, 64, kind)], false)
}

fn alloc(state: &mut State, stream: Stream) {
    state.alloc(0, 64, stream, StackId(7));
}

#[test]
fn reports_a_read_before_another_streams_write_completes() {
    let mut state = State::new();
    assert!(write(&mut state, DEFAULT, 0).is_empty());
    let reports = read(&mut state, A, 32);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.conflict, report.address, report.bytes), (Conflict::Race, 32, 32));
    assert_eq!(report.missing, Missing::Wait { too_early: false });
    let previous = report.previous.as_ref().unwrap();
    assert_eq!((&*report.access.name, &*previous.name), ("sum", "normal_"));
    assert_eq!(
        report.headline(),
        "\"sum\" in stream 0x100 of device 0 reads 32 bytes from 0x20 on while \"normal_\" in the default stream of \
         device 0 writes them: nothing orders the two"
    );
    assert_eq!(
        report.advice(),
        "stream 0x100 of device 0 must wait for the default stream of device 0 after \"normal_\" and before \"sum\" \
         (plinth_stream_wait_stream or plinth_event_wait); it has not waited for it"
    );
    let text = report.text();
    for part in ["race: ", "the access: ", "the earlier access: ", "missing: ", "operation 1,", "an unknown stack"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let json = json::json(&reports);
    for part in
        ["[{\"kind\":\"race\",", "\"missing\":\"wait\"", "\"name\":\"normal_\"", "\"stream\":256", "\"frames\":[]"]
    {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    assert!(json.ends_with("\"allocation\":null,\"former_allocation\":null}]"), "{json}");
}

#[test]
fn reads_do_not_race_and_each_stream_is_ordered() {
    let mut state = State::new();
    assert!(read(&mut state, A, 0).is_empty() && read(&mut state, B, 0).is_empty());
    assert_eq!(write(&mut state, A, 0).len(), 1);
    assert!(write(&mut state, A, 0).is_empty() && read(&mut state, A, 0).is_empty());
    assert!(write(&mut state, C, 64).is_empty());
}

#[test]
fn a_wait_covers_only_earlier_work() {
    let mut state = State::new();
    write(&mut state, A, 0);
    state.wait_stream(B, A);
    assert!(read(&mut state, B, 0).is_empty());
    write(&mut state, A, 64);
    let reports = read(&mut state, B, 64);
    assert_eq!(reports[0].missing, Missing::Wait { too_early: true });
    assert!(reports[0].advice().ends_with("it last waited for it before \"normal_\" was enqueued"));
}

#[test]
fn an_event_refers_to_its_last_record() {
    let mut state = State::new();
    write(&mut state, A, 0);
    state.record_event(1, A, false);
    write(&mut state, A, 64);
    state.wait_event(1, B, false);
    state.wait_event(2, B, false);
    assert!(read(&mut state, B, 0).is_empty());
    assert_eq!(read(&mut state, B, 64).len(), 1);
    state.record_event(1, A, false);
    state.wait_event(1, C, false);
    assert!(read(&mut state, C, 0).is_empty() && read(&mut state, C, 64).is_empty());
    state.forget_event(1);
    write(&mut state, C, 128);
    state.wait_event(1, B, false);
    assert_eq!(write(&mut state, B, 128).len(), 1);
}

#[test]
fn the_cpu_must_wait() {
    let mut state = State::new();
    write(&mut state, A, 0);
    let reports = cpu(&mut state, Kind::Read);
    assert!(reports[0].advice().starts_with("the CPU must wait for stream 0x100"), "{}", reports[0].advice());
    state.finish_stream(A);
    assert!(cpu(&mut state, Kind::Write).is_empty() && read(&mut state, B, 0).is_empty());
    assert_eq!(cpu(&mut state, Kind::Write).len(), 1);
    state.record_event(1, B, false);
    state.finish_event(1);
    assert!(cpu(&mut state, Kind::Write).is_empty());
    let moment = state.moment(A);
    write(&mut state, A, 0);
    state.finish(&moment);
    assert_eq!(cpu(&mut state, Kind::Read).len(), 1);
    state.finish_device(1);
    assert_eq!(cpu(&mut state, Kind::Read).len(), 1);
    state.finish_device(0);
    assert!(cpu(&mut state, Kind::Read).is_empty());
}

#[test]
fn the_default_stream_and_blocking_streams_wait_for_each_other() {
    let mut state = State::new();
    let blocking = |handle| Stream { kind: StreamKind::Blocking, ..stream(handle) };
    write(&mut state, blocking(1024), 0);
    assert_eq!(write(&mut state, blocking(2048), 0).len(), 1);
    assert!(write(&mut state, DEFAULT, 0).is_empty());
    assert!(write(&mut state, blocking(1024), 0).is_empty());
    assert_eq!(write(&mut state, A, 0).len(), 1);
    assert_eq!(write(&mut state, DEFAULT, 0).len(), 1);
}

#[test]
fn reports_an_access_past_the_end_of_its_block() {
    let mut state = State::new();
    state.alloc(4096, 1024, A, StackId(7));
    let access = |state: &mut State, start, bytes, refuse| {
        let operands = [Operand::new(start, bytes, Kind::Write)];
        state.operation(Executor::Stream(A), Call { name: "fill", stack: StackId(9) }, &operands, refuse)
    };
    assert!(access(&mut state, 4096, 1024, false).is_empty());
    assert!(access(&mut state, 4096 + 1000, 24, false).is_empty());
    // Memory that is in no block is the program's.
    assert!(access(&mut state, 1 << 20, 4096, false).is_empty());
    for refuse in [false, true] {
        let reports = access(&mut state, 4096 + 512, 2048, refuse);
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((report.conflict, report.missing), (Conflict::OutOfBounds, Missing::LargerBlock));
        assert_eq!((report.address, report.bytes), (4096 + 1024, 1536));
        assert_eq!(report.allocation.as_ref().unwrap().stack, StackId(7));
        assert!(
            report
                .headline()
                .ends_with("writes 2.00 KiB from byte 512 of a block of 1.00 KiB at 0x1000: 1.50 KiB lie past its end")
        );
        assert_eq!(report.advice(), "pass \"fill\" at most 512 bytes from 0x1200 on, or allocate a larger block");
    }
    // A freed block has no bounds any more.
    state.free(4096, StackId(8), None);
    assert!(access(&mut state, 4096, 4096, false).iter().all(|report| report.conflict == Conflict::UseAfterFree));
}

#[test]
fn reports_use_of_freed_memory() {
    let mut state = State::new();
    alloc(&mut state, A);
    write(&mut state, A, 0);
    state.free(0, StackId(8), None);
    let reports = read(&mut state, A, 0);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.conflict, report.missing), (Conflict::UseAfterFree, Missing::LaterFree));
    let allocation = report.allocation.as_ref().unwrap();
    assert_eq!((allocation.stack, allocation.freed), (StackId(7), Some(StackId(8))));
    assert!(report.headline().ends_with("reads 64 bytes from 0x0 on, which were freed"));
    // After a part is reallocated, the rest stays freed.
    state.alloc(0, 16, A, StackId::NONE);
    let reports = read(&mut state, A, 0);
    assert_eq!((reports.len(), reports[0].address, reports[0].bytes), (1, 16, 48));
    state.forget_memory(0, 64);
    assert!(read(&mut state, B, 0).is_empty());
}

#[test]
fn reports_reuse_while_another_stream_still_uses_the_block() {
    let mut state = State::new();
    alloc(&mut state, A);
    read(&mut state, B, 0);
    state.free(0, StackId::NONE, None);
    alloc(&mut state, A);
    let reports = write(&mut state, A, 0);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.conflict, report.missing), (Conflict::Reuse, Missing::RecordStream));
    assert_eq!(report.former.as_ref().map(|former| former.number), Some(1));
    assert!(report.advice().contains("before stream 0x200 of device 0 had run \"sum\""), "{}", report.advice());
}

#[test]
fn reuse_waits_for_recorded_streams() {
    let mut state = State::new();
    alloc(&mut state, A);
    read(&mut state, B, 0);
    state.record_stream(0, B);
    read(&mut state, C, 0);
    state.free(0, StackId::NONE, None);
    alloc(&mut state, A);
    let reports = write(&mut state, A, 0);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].previous.as_ref().unwrap().site.stream(), Some(C));
}

#[test]
fn the_new_owner_of_a_block_is_ordered_by_the_blocks_stream() {
    let mut state = State::new();
    alloc(&mut state, A);
    write(&mut state, A, 0);
    state.free(0, StackId::NONE, None);
    alloc(&mut state, A);
    let reports = write(&mut state, B, 0);
    assert_eq!((reports[0].conflict, reports[0].missing), (Conflict::Reuse, Missing::Wait { too_early: false }));
}

#[test]
fn reuse_in_another_stream_waits_for_the_blocks_stream() {
    let mut state = State::new();
    alloc(&mut state, A);
    write(&mut state, A, 0);
    state.free(0, StackId::NONE, None);
    write(&mut state, A, 64);
    alloc(&mut state, C);
    assert!(write(&mut state, C, 0).is_empty());
    assert_eq!(write(&mut state, C, 64).len(), 1);
}

#[test]
fn a_refused_operation_is_not_added() {
    let mut state = State::new();
    write(&mut state, A, 0);
    let operands = [Operand::new(0, 64, Kind::Write), Operand::new(64, 64, Kind::Write)];
    assert_eq!(state.operation(Executor::Stream(B), call("refused"), &operands, true).len(), 1);
    assert!(write(&mut state, A, 0).is_empty() && write(&mut state, C, 64).is_empty());
}

/// Captures a graph in A and B: A writes and B reads, after the write if `joined`.
fn capture(state: &mut State, joined: bool) {
    state.capture_begin(9, A);
    state.record_event(1, A, false);
    assert!(write(state, A, 0).is_empty());
    if joined {
        state.record_event(1, A, false);
    }
    state.wait_event(1, B, false);
    assert!(read(state, B, 0).is_empty());
    state.wait_stream(A, B);
    state.capture_end(9, true);
}

#[test]
fn a_replay_repeats_the_captured_operations() {
    let mut state = State::new();
    capture(&mut state, true);
    write(&mut state, C, 0);
    assert_eq!(state.replay(9, A, false).len(), 1);
    // Replays of one graph are ordered, in any streams.
    assert!(state.replay(9, B, false).is_empty());
    assert!(write(&mut state, B, 0).is_empty());
    assert!(state.replay(9, B, false).is_empty());
    let reports = write(&mut state, A, 0);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(matches!(reports[0].previous.as_ref().unwrap().site, report::Site::Replay { graph: 9, .. }));
    state.forget_graph(9);
    assert!(state.replay(9, C, false).is_empty());
}

#[test]
fn unordered_branches_of_a_graph_race() {
    let mut state = State::new();
    capture(&mut state, false);
    let reports = state.replay(9, C, false);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.advice(), "graph 0x9 has no path from \"normal_\" to \"sum\"");
}

#[test]
fn a_branch_is_ordered_after_the_node_that_it_forked_from() {
    let mut state = State::new();
    state.capture_begin(9, A);
    write(&mut state, A, 0);
    state.record_event(1, A, false);
    write(&mut state, A, 64);
    state.wait_event(1, B, false);
    read(&mut state, B, 0);
    read(&mut state, B, 64);
    state.wait_stream(A, B);
    state.capture_end(9, true);
    let reports = state.replay(9, C, false);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.address, 64);
}

#[test]
fn a_destroyed_graph_may_still_run() {
    let mut state = State::new();
    for (graph, stream, races) in [(9, A, 0), (10, B, 1)] {
        state.capture_begin(graph, stream);
        write(&mut state, stream, 0);
        state.capture_end(graph, true);
        assert_eq!(state.replay(graph, stream, false).len(), races);
        state.forget_graph(graph);
    }
}

#[test]
fn a_graph_owns_its_memory_and_depends_on_other_memory() {
    let mut state = State::new();
    state.alloc(64, 64, A, StackId::NONE);
    state.capture_begin(9, A);
    alloc(&mut state, A);
    write(&mut state, A, 0);
    write(&mut state, A, 64);
    state.free(0, StackId::NONE, None);
    assert_eq!(write(&mut state, A, 0)[0].conflict, Conflict::UseAfterFree);
    state.capture_end(9, true);
    assert!(state.replay(9, A, false).is_empty());
    state.free(64, StackId(5), None);
    let reports = state.replay(9, A, false);
    assert_eq!((reports.len(), reports[0].conflict, reports[0].address), (1, Conflict::UseAfterFree, 64));
    // The memory may even have a new owner by now.
    state.alloc(64, 64, A, StackId::NONE);
    let reports = state.replay(9, A, false);
    assert_eq!((reports.len(), reports[0].conflict), (1, Conflict::UseAfterFree));
    assert_eq!(reports[0].allocation.as_ref().unwrap().freed, Some(StackId(5)));
}

#[test]
fn nodes_of_a_graph_may_record_and_wait_for_events() {
    let mut state = State::new();
    state.capture_begin(9, A);
    write(&mut state, A, 0);
    state.record_event(1, A, true);
    write(&mut state, A, 64);
    state.wait_event(2, A, true);
    write(&mut state, A, 128);
    state.capture_end(9, true);
    write(&mut state, C, 128);
    state.record_event(2, C, false);
    assert!(state.replay(9, A, false).is_empty());
    state.wait_event(1, B, false);
    assert!(read(&mut state, B, 0).is_empty());
    assert_eq!(read(&mut state, B, 64).len(), 1);
}

#[test]
fn sweeping_completed_work_loses_no_race() {
    let mut state = State::new();
    write(&mut state, A, 0);
    write(&mut state, B, 64);
    state.finish_stream(A);
    state.sweep();
    assert!(write(&mut state, C, 0).is_empty());
    assert_eq!(write(&mut state, C, 64).len(), 1);
}

#[test]
fn a_wait_completes_only_in_the_state_where_it_began() {
    let mut old = State::new();
    for stream in [A, B, C] {
        write(&mut old, stream, 0);
    }
    let pending = PendingMoments::with_moments(&old, old.end_of_device(0));
    let mut state = State::new();
    // The new state has no tracks of the other streams, and its track numbers belong to different work.
    write(&mut state, A, 0);
    pending.finish_in(&mut state);
    assert_eq!(read(&mut state, B, 0).len(), 1);
    pending.finish_in(&mut old);
    assert!(read(&mut old, A, 0).is_empty());
}

#[test]
fn a_refused_replay_leaves_no_trace() {
    let mut state = State::new();
    state.capture_begin(9, C);
    write(&mut state, C, 0);
    state.record_event(7, C, true);
    read(&mut state, C, 64);
    state.capture_end(9, true);
    write(&mut state, A, 0);
    for _ in 0..2 {
        let reports = state.replay(9, B, true);
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!(report.previous.as_ref().unwrap().site, report::Site::Stream(A));
    }
    // Neither the graph's operations, nor its event, nor its order were added.
    assert!(write(&mut state, A, 64).is_empty());
    state.wait_event(7, C, false);
    assert_eq!(write(&mut state, B, 0).len(), 1);
    assert_eq!(write(&mut state, C, 0).len(), 1);
    state.wait_stream(B, A);
    state.wait_stream(B, C);
    assert!(state.replay(9, B, true).is_empty());
    assert_eq!(read(&mut state, A, 0).len(), 1);
}

#[test]
fn destroyed_streams_are_forgotten_once_their_work_is_complete() {
    let mut state = State::new();
    for handle in 1..100 {
        let stream = stream(0x1000 + handle);
        write(&mut state, stream, 0);
        if handle % 2 == 0 {
            state.finish_stream(stream);
        }
        state.end_streams(|ended| *ended == stream);
        // The last one's work may still run.
        assert_eq!(state.end_of_device(0).len(), handle % 2);
        state.finish_device(0);
    }
    // A block of a destroyed stream is not taken for one of the stream that gets its track.
    alloc(&mut state, A);
    state.end_streams(|ended| *ended == A);
    assert!(write(&mut state, B, 0).is_empty());
    state.free(0, StackId(8), None);
    alloc(&mut state, C);
    let reports = write(&mut state, C, 0);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.conflict, report.missing), (Conflict::Reuse, Missing::RecordStream));
}
