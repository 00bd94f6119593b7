//! Errors of a group: they end the pending work, name the rank that caused them, and do not prevent another group.

use crate::{
    Scenario,
    rank::{Me, Memory, be_busy, eventually, me, new_stream, synchronize},
    run, start,
};
use plinth::internal::{
    collectives::{devices::ReduceOp, processes::ProcessGroup},
    runtime::tensor::ElementType,
    stream::Stream,
};
use plinth_driver::{error::Error, status::Status};
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    ("mismatch", mismatch),
    ("transfer_mismatch", transfer_mismatch),
    ("timeout", timeout),
    ("missing_row", missing_row),
    ("abort", abort),
    ("killed", killed),
    ("aborted_after_a_loss", aborted_after_a_loss),
    ("leaves", leaves),
    ("leaves_early", leaves_early),
    ("leaves_unread", leaves_unread),
    ("leaves_before_a_rendezvous", leaves_before_a_rendezvous),
    ("late_row", late_row),
    ("abort_rows", abort_rows),
    ("hammer", hammer),
];

#[test]
fn mismatched_calls_are_reported_by_every_rank() {
    for difference in ["count", "element", "op", "root", "call"] {
        run("mismatch", 3, &[("PLINTH_TEST_DIFFERENCE", difference)]);
    }
}

#[test]
fn a_message_of_another_size_is_reported_by_the_receiver() {
    for counts in ["4 3", "0 3", "4 0", "4096 4097", "65536 65537", "70000 3", "3 70000"] {
        run("transfer_mismatch", 2, &[("PLINTH_TEST_DIFFERENCE", counts)]);
    }
}

#[test]
fn a_timeout_names_the_missing_rank() {
    run("timeout", 3, &[]);
    run("missing_row", 3, &[]);
}

#[test]
fn an_abort_ends_all_waits_and_another_group_can_be_created() {
    run("abort", 4, &[]);
}

#[test]
fn a_killed_rank_is_reported_by_the_others() {
    run_with_victim("killed", 4);
}

#[test]
fn an_abort_after_a_loss_reaches_ranks_that_do_not_ask() {
    run_with_victim("aborted_after_a_loss", 3);
}

/// Runs a scenario in which rank 2 ends abnormally; the others must succeed.
fn run_with_victim(scenario: &str, size: u32) {
    let mut ranks = start(scenario, size, &[]);
    let victim = ranks.remove(2);
    for (rank, other) in ranks.into_iter().enumerate() {
        let (success, text) = other.end();
        assert!(success, "one of the others, {rank}: {text}");
    }
    assert!(!victim.end().0);
}

#[test]
fn a_rank_may_leave_early_but_is_reported_when_it_is_needed() {
    run("leaves", 3, &[]);
}

#[test]
fn a_rank_that_completed_its_work_may_leave_before_slow_ranks() {
    run("leaves_early", 3, &[]);
}

#[test]
fn sends_to_a_rank_that_has_left_need_only_free_entries() {
    run("leaves_unread", 2, &[]);
}

#[test]
fn long_sends_to_a_rank_that_has_left_end() {
    run("leaves_before_a_rendezvous", 2, &[]);
}

#[test]
fn a_late_row_aborts_the_group_for_all() {
    run("late_row", 2, &[]);
}

#[test]
fn an_abort_does_not_wait_for_rows_and_ends_their_waits() {
    run("abort_rows", 2, &[]);
}

#[test]
fn ranks_killed_at_any_time_leave_no_rank_hanging() {
    for round in 0..12 {
        let mut ranks = start("hammer", 4, &[("PLINTH_GROUP_TUNING", "staging=8192,one_shot=1024")]);
        std::thread::sleep(Duration::from_millis(40 + 37 * round));
        let mut victim = ranks.remove(round as usize % 4);
        victim.kill();
        for other in ranks {
            let (success, text) = other.end();
            assert!(success, "in round {round}: {text}");
        }
    }
}

/// Sums four integers.
fn sum(group: &ProcessGroup, memory: &Memory, stream: Stream) -> Result<(), Error> {
    group.all_reduce(memory.span, memory.span, 4, ElementType::I32, ReduceOp::Sum, stream)
}

fn small_memory(stream: Stream) -> Memory {
    Memory::of(stream, &[1; 16])
}

/// Checks that the group has this sticky error.
fn expect_sticky_error(group: &ProcessGroup, stream: Stream, memory: &Memory, status: Status) -> String {
    let error = eventually("the group has no error", || group.error());
    assert_eq!(error.status(), status, "{error}");
    synchronize(stream);
    assert_eq!(sum(group, memory, stream).unwrap_err().status(), status);
    assert_eq!(group.error().unwrap().status(), status);
    error.message().to_owned()
}

/// Checks that the group works.
fn expect_sum(group: &ProcessGroup, stream: Stream) {
    let memory = small_memory(stream);
    sum(group, &memory, stream).unwrap();
    let expected = 0x0101_0101_i32.wrapping_mul(group.size() as i32).to_le_bytes().repeat(4);
    assert_eq!(memory.read(stream), expected, "{:?}", group.error());
}

fn begin() -> (Me, ProcessGroup, Stream, Memory) {
    let me = me();
    let (group, stream) = (me.join(), new_stream(me.device()));
    expect_sum(&group, stream);
    (me, group, stream, small_memory(stream))
}

fn mismatch() {
    let (me, group, stream, memory) = begin();
    let odd = me.rank == 1;
    let mut element = ElementType::I32;
    let (mut count, mut op, mut root) = (4, ReduceOp::Sum, 0);
    let difference = std::env::var("PLINTH_TEST_DIFFERENCE").unwrap();
    if odd {
        match difference.as_str() {
            "count" => count = 3,
            "element" => element = ElementType::U32,
            "op" => op = ReduceOp::Maximum,
            "root" => root = 2,
            _ => {}
        }
    }
    if difference == "call" && odd {
        group.broadcast(memory.span, memory.span, count, element, 0, stream).unwrap();
    } else {
        group.reduce(memory.span, memory.span, count, element, op, root, stream).unwrap();
    }
    let message = expect_sticky_error(&group, stream, &memory, Status::RANK_MISMATCH);
    // A rank that compares the odd rank's call with its own reports both; one that was notified first names the rank.
    assert!(message.contains("rank 1") || message.contains("reported a collective mismatch"), "{message}");
    let both = |message: &str| match difference.as_str() {
        "count" => message.contains("of 3 int32") && message.contains("of 4 int32"),
        "element" => message.contains("uint32") && message.contains(" int32"),
        "op" => message.contains("(maximum)") && message.contains("(sum)"),
        "root" => message.contains("to rank 2") && message.contains("to rank 0"),
        _ => message.contains("broadcast from rank 0") && message.contains("reduce (sum)"),
    };
    let found = group.gather_bytes(message.as_bytes()).unwrap();
    assert!(found.iter().any(|message| both(&String::from_utf8_lossy(message))), "{found:?}");
}

fn transfer_mismatch() {
    let (me, group, stream, memory) = begin();
    let counts = std::env::var("PLINTH_TEST_DIFFERENCE").unwrap();
    let [sent, received] = [0, 1].map(|index| counts.split(' ').nth(index).unwrap().parse::<u64>().unwrap());
    let whole = Memory::new(me.device(), 4 << 20);
    if me.rank == 0 {
        group.send(whole.span, sent, ElementType::I32, 1, stream).unwrap();
    } else {
        group.recv(whole.span, received, ElementType::I32, 0, stream).unwrap();
        let message = expect_sticky_error(&group, stream, &memory, Status::RANK_MISMATCH);
        let says = |count| message.contains(&format!("a transfer of {} bytes", 4 * count));
        assert!(says(sent) && says(received), "{message}");
    }
    // Neither rank may leave before the other has checked.
    group.gather_bytes(b"").unwrap();
}

fn timeout() {
    let (me, group, stream, memory) = begin();
    // The first timeout aborts the group for all, so each rank measures from before any of them waits.
    let start = Instant::now();
    group.gather_bytes(b"").unwrap();
    group.set_timeout(Duration::from_secs(2));
    if me.rank != 1 {
        sum(&group, &memory, stream).unwrap();
        let message = expect_sticky_error(&group, stream, &memory, Status::TIMED_OUT);
        assert!(message.contains("waited too long for rank 1"), "{message}");
        assert!(start.elapsed() >= Duration::from_secs(2));
    }
    group.set_timeout(Duration::from_secs(30));
    group.gather_bytes(b"").unwrap();
    if me.rank == 1 {
        // Too late: the others have already aborted the group.
        let _ = sum(&group, &memory, stream);
        expect_sticky_error(&group, stream, &memory, Status::TIMED_OUT);
    }
    group.gather_bytes(b"").unwrap();
}

/// A rank that waits for a row in vain tells the others why the group has ended.
fn missing_row() {
    let (me, group, ..) = begin();
    group.gather_bytes(b"").unwrap();
    group.set_timeout(Duration::from_secs(if me.rank == 0 { 1 } else { 30 }));
    if me.rank != 1 {
        let error = group.gather_bytes(b"").unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
        assert!(error.message().contains("rank 1"), "{error}");
    }
    let error = eventually("no rank fails", || group.error());
    assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
    assert!(error.message().contains("rank 0 of 3 waited too long for rank 1"), "{error}");
}

fn abort() {
    let (me, group, stream, memory) = begin();
    if me.rank != 2 {
        sum(&group, &memory, stream).unwrap();
    } else {
        std::thread::sleep(Duration::from_millis(30));
        group.abort();
        group.abort();
    }
    if me.rank == 0 {
        // The kernel itself is notified, without a check of the group.
        synchronize(stream);
    }
    let message = expect_sticky_error(&group, stream, &memory, Status::ABORTED);
    assert!(message.contains("rank 2 of 4 aborted the group"), "{message}");
    drop(group);
    let again = ProcessGroup::join(&me.ids[1], me.rank, me.size, me.device(), crate::rank::SOON).unwrap();
    expect_sum(&again, stream);
}

#[allow(clippy::disallowed_methods, reason = "the test simulates a rank that ends abnormally")]
fn killed() {
    let (me, group, stream, memory) = begin();
    if me.rank == 2 {
        std::process::abort();
    }
    sum(&group, &memory, stream).unwrap();
    let message = expect_sticky_error(&group, stream, &memory, Status::PEER_LOST);
    assert!(message.contains("rank 2 of 4 is gone"), "{message}");
    drop(group);
    // The remaining ranks create another group.
    let rank = if me.rank == 3 { 2 } else { me.rank };
    let again = ProcessGroup::join(&me.ids[1], rank, 3, me.device(), crate::rank::SOON).unwrap();
    expect_sum(&again, stream);
}

/// Rank 1 waits for its stream alone, so only an abort of rank 0, which has noticed the loss, ends its work.
#[allow(clippy::disallowed_methods, reason = "the test simulates a rank that ends abnormally")]
fn aborted_after_a_loss() {
    let (me, group, stream, memory) = begin();
    match me.rank {
        0 => {
            let error = eventually("no rank is reported", || group.error());
            assert_eq!(error.status(), Status::PEER_LOST, "{error}");
            group.abort();
            group.abort();
            assert_eq!(group.error().unwrap().status(), Status::PEER_LOST);
        }
        1 => {
            sum(&group, &memory, stream).unwrap();
            synchronize(stream);
            // The abort came after the cause.
            expect_sticky_error(&group, stream, &memory, Status::PEER_LOST);
        }
        _ => {
            std::thread::sleep(Duration::from_millis(30));
            std::process::abort();
        }
    }
}

fn leaves() {
    let (me, group, stream, memory) = begin();
    if me.rank == 1 {
        return;
    }
    // A rank that left is not an error while no work needs it.
    std::thread::sleep(Duration::from_millis(200));
    assert!(group.error().is_none());
    // Neither of the remaining ranks launches work before the other has checked.
    let pair = ProcessGroup::join(&me.ids[1], me.rank / 2, 2, me.device(), crate::rank::SOON).unwrap();
    drop(pair);
    sum(&group, &memory, stream).unwrap();
    if me.rank == 2 {
        // The other rank detects it first, and has also left by the time this one checks.
        std::thread::sleep(Duration::from_millis(1500));
    }
    let message = expect_sticky_error(&group, stream, &memory, Status::PEER_LOST);
    assert!(message.contains("rank 1"), "{message}");
}

/// Rank 1 sends to both others, receives from one and leaves. The others are busy for longer than the grace period of a
/// rank that is gone, and one of their launches also waits for the other one.
fn leaves_early() {
    let (me, group, stream, memory) = begin();
    let (element, late) = (ElementType::U8, new_stream(me.device()));
    let (mine, words) = (Memory::of(stream, &[me.rank as u8 + 1; 16]), Memory::of(stream, &[0; 32]));
    if me.rank == 1 {
        group.send(mine.span, 16, element, 0, stream).unwrap();
        group.send(mine.span, 16, element, 2, stream).unwrap();
        group.recv(words.part(0, 16), 16, element, 0, stream).unwrap();
        synchronize(stream);
        return;
    }
    let other = 2 - me.rank;
    if me.rank == 0 {
        group.send(mine.span, 16, element, 1, stream).unwrap();
        let from = |peer: u32, at: usize| plinth::internal::collectives::processes::Transfer {
            peer,
            sends: false,
            memory: words.part(at, 16),
            element,
        };
        group.exchange(&[from(1, 0), from(2, 16)], stream).unwrap();
    } else {
        be_busy(late, 2500);
        group.recv(words.part(0, 16), 16, element, 1, late).unwrap();
        group.send(mine.span, 16, element, 0, late).unwrap();
    }
    let of = if me.rank == 0 { stream } else { late };
    eventually("the work does not end", || {
        assert!(group.error().is_none(), "{:?}", group.error());
        let runtime = plinth::internal::runtime::ready().unwrap();
        runtime.driver.stream_query(of.raw).unwrap().then_some(())
    });
    let second = if me.rank == 0 { other as u8 + 1 } else { 0 };
    assert_eq!(words.read(of), [[2; 16], [second; 16]].concat());
    // Work beyond what rank 1 has completed is an error, even before it runs.
    be_busy(stream, 300);
    sum(&group, &memory, stream).unwrap();
    let message = expect_sticky_error(&group, stream, &memory, Status::PEER_LOST);
    assert!(message.contains("rank 1"), "{message}");
}

fn leaves_unread() {
    let (me, group, stream, _memory) = begin();
    if me.rank == 1 {
        return;
    }
    let (element, small) = (ElementType::U8, Memory::of(stream, &[5; 16]));
    for _ in 0..4 {
        group.send(small.span, 16, element, 1, stream).unwrap();
    }
    synchronize(stream);
    std::thread::sleep(Duration::from_millis(100));
    assert!(group.error().is_none(), "{:?}", group.error());
    group.send(small.span, 16, element, 1, stream).unwrap();
    let error = eventually("no rank is reported", || group.error());
    assert_eq!(error.status(), Status::PEER_LOST, "{error}");
    synchronize(stream);
}

fn leaves_before_a_rendezvous() {
    let (me, group, stream, _memory) = begin();
    if me.rank == 1 {
        return;
    }
    // It would fit into the ring.
    let long = Memory::of(stream, &vec![5; 2 << 20]);
    group.send(long.span, 2 << 20, ElementType::U8, 1, stream).unwrap();
    let error = eventually("no rank is reported", || group.error());
    assert_eq!(error.status(), Status::PEER_LOST, "{error}");
    synchronize(stream);
}

fn late_row() {
    let (me, group, stream, memory) = begin();
    if me.rank == 0 {
        group.set_timeout(Duration::from_millis(100));
        let error = group.gather_bytes(b"x").unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
        assert_eq!(sum(&group, &memory, stream).unwrap_err().status(), Status::TIMED_OUT);
        // The previous row is not taken for this one.
        assert_eq!(group.gather_bytes(b"y").unwrap_err().status(), Status::TIMED_OUT);
    }
    if me.rank == 1 {
        let error = eventually("no rank aborts", || group.error());
        assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
    }
}

fn abort_rows() {
    let (me, group, _stream, _memory) = begin();
    if me.rank == 1 {
        let error = eventually("no rank aborts", || group.error());
        assert_eq!(error.status(), Status::ABORTED, "{error}");
        return;
    }
    std::thread::scope(|scope| {
        let gathering = scope.spawn(|| group.gather_bytes(b"x"));
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        group.abort();
        let error = gathering.join().unwrap().unwrap_err();
        assert_eq!(error.status(), Status::ABORTED, "{error}");
        assert!(start.elapsed() < Duration::from_secs(20));
    });
}

/// Repeats calls until another rank is lost.
fn hammer() {
    let me = me();
    let group = match ProcessGroup::join(&me.ids[0], me.rank, me.size, me.device(), Some(Duration::from_secs(2))) {
        Ok(group) => group,
        // The victim may not have joined yet.
        Err(error) => {
            let known = [Status::TIMED_OUT, Status::PEER_LOST, Status::PEER_ACCESS_UNSUPPORTED];
            return assert!(known.contains(&error.status()), "{error}");
        }
    };
    let stream = new_stream(me.device());
    let count = 3000;
    let memory = Memory::of(stream, &vec![1; 4 * count]);
    let error = eventually("the loss of the victim is not reported", || {
        for turn in 0..20 {
            let element = ElementType::I32;
            let done = match turn % 3 {
                0 => group.all_reduce(memory.span, memory.span, count as u64, element, ReduceOp::Sum, stream),
                1 => group.broadcast(memory.span, memory.span, count as u64, element, turn % 4, stream),
                _ if me.rank.is_multiple_of(2) => group.send(memory.span, count as u64, element, me.rank + 1, stream),
                _ => group.recv(memory.span, count as u64, element, me.rank - 1, stream),
            };
            if let Err(error) = done {
                return Some(error);
            }
        }
        // Limit the work that is in flight.
        eventually("the calls do not end", || {
            let runtime = plinth::internal::runtime::ready().unwrap();
            let done = runtime.driver.stream_query(stream.raw).unwrap();
            (done || group.error().is_some()).then_some(())
        });
        group.error()
    });
    assert!([Status::PEER_LOST, Status::ABORTED].contains(&error.status()), "{error}");
}
