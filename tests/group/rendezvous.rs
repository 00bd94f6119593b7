//! The rendezvous of ranks, and the release of their resources.

use crate::{
    Scenario, hex,
    rank::{Memory, device_of, me, new_stream, synchronize},
    run,
};
use plinth::internal::{
    collectives::{
        devices::ReduceOp,
        processes::{Candidate, ProcessGroup},
    },
    init::testing,
    runtime::{self, tensor::ElementType},
};
use plinth_driver::{Kind, error::Error, status::Status};
use std::{
    fs,
    io::Write,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    thread::sleep,
    time::Duration,
};

pub const SCENARIOS: &[Scenario] = &[
    ("bytes", bytes),
    ("sizes", sizes),
    ("duplicates", duplicates),
    ("alone", alone),
    ("intruders", intruders),
    ("tunings", tunings),
    ("leak", leak),
    ("invalid_calls", invalid_calls),
];

#[test]
fn bytes_are_gathered_through_the_cpu() {
    run("bytes", 5, &[]);
}

#[test]
fn a_size_mismatch_is_reported_by_all_ranks() {
    run("sizes", 3, &[]);
}

#[test]
fn duplicate_ranks_are_reported() {
    run("duplicates", 3, &[]);
}

#[test]
fn a_tuning_mismatch_is_reported() {
    run("tunings", 2, &[("PLINTH_GROUP_TUNING", "blocks=1{rank}")]);
}

#[test]
fn a_rank_without_peers_times_out() {
    run("alone", 2, &[]);
}

#[test]
fn silent_connections_do_not_delay_the_rendezvous() {
    run("intruders", 3, &[]);
}

#[test]
fn a_folder_replaces_the_abstract_namespace() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("meet");
    fs::create_dir_all(&folder).unwrap();
    run("bytes", 3, &[("PLINTH_RENDEZVOUS_DIR", folder.to_str().unwrap())]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn destroyed_groups_leak_nothing() {
    run("leak", 3, &[]);
}

#[test]
fn invalid_calls_are_rejected_before_a_launch() {
    run("invalid_calls", 1, &[]);
}

fn bytes() {
    let me = me();
    let group = me.join();
    for length in [0, 1, 70_000] {
        let of = |rank: u32| vec![rank as u8 + 1; length + rank as usize];
        let all = group.gather_bytes(&of(me.rank)).unwrap();
        assert_eq!(all, (0..me.size).map(of).collect::<Vec<_>>());
    }
}

fn sizes() {
    let me = me();
    let size = if me.rank == 2 { 4 } else { 3 };
    let error = ProcessGroup::join(&me.ids[0], me.rank, size, 0, Some(Duration::from_secs(5))).unwrap_err();
    // A later rank finds no listener, or its connection is closed.
    if error.status() == Status::RANK_MISMATCH {
        assert!(error.message().contains("rank 2 joins a group of 4 ranks, rank 0 one of 3"), "{error}");
    } else {
        assert!(me.rank != 0 && [Status::PEER_LOST, Status::TIMED_OUT].contains(&error.status()), "{error}");
    }
}

fn duplicates() {
    let me = me();
    let rank = if me.rank == 2 { 1 } else { me.rank };
    let error = ProcessGroup::join(&me.ids[0], rank, 3, 0, Some(Duration::from_secs(10))).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_VALUE, "{error}");
    assert!(error.message().contains("two processes are rank 1"), "{error}");
}

fn tunings() {
    let me = me();
    let error = ProcessGroup::join(&me.ids[0], me.rank, 2, 0, Some(Duration::from_secs(20))).unwrap_err();
    assert_eq!(error.status(), Status::RANK_MISMATCH, "{error}");
    assert!(error.message().contains("tuning"), "{error}");
}

fn alone() {
    let me = me();
    // Each is rank 0 or 1 of its own group.
    let id = me.ids[me.rank as usize];
    let error = ProcessGroup::join(&id, me.rank, 2, 0, Some(Duration::from_millis(80))).unwrap_err();
    assert_eq!(error.status(), Status::TIMED_OUT, "{error}");
    let missing = if me.rank == 0 { "ranks [1]" } else { "rank 0" };
    assert!(error.message().contains(missing) && error.message().contains("80ms"), "{error}");
    // A rendezvous without a timeout ends when the stop condition holds.
    let start = std::time::Instant::now();
    let stop = || (start.elapsed() > Duration::from_millis(80)).then(|| Error::new(Status::ABORTED, "stopped"));
    let error = Candidate::new(me.rank, 2, 0).unwrap().join(&id, None, &stop).unwrap_err();
    assert_eq!(error.status(), Status::ABORTED, "{error}");
}

/// Rank 1 opens many connections to the group's socket, whose name any process can read, before it and rank 2 join.
fn intruders() {
    let me = me();
    let id = me.ids[0];
    let name = format!("plinth-group-{}", hex(&id[16..32]));
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let mut silent = Vec::new();
    if me.rank == 1 {
        // More connections than rank 0 keeps at a time, most of them silent.
        while silent.len() < 70 {
            match UnixStream::connect_addr(&address) {
                Ok(mut socket) => {
                    let data: &[u8] = [&[][..], &[0; 5], &[0xFF; 200], &[0; 9]][silent.len() % 4];
                    // It may have been closed already.
                    let _ = socket.write_all(data);
                    silent.push(socket);
                }
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    } else if me.rank == 2 {
        sleep(Duration::from_millis(300));
    }
    let group = ProcessGroup::join(&id, me.rank, me.size, me.device(), Some(Duration::from_secs(30))).unwrap();
    let waited = group.gather_bytes(&silent.len().to_le_bytes()).unwrap();
    assert_eq!(waited[1], 70_usize.to_le_bytes());
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn leak() {
    let me = me();
    let stream = new_stream(me.device());
    let memory = Memory::of(stream, &[3; 64]);
    let is_host = runtime::ready().unwrap().driver.kind() == Kind::Host;
    let mut before = None;
    for turn in 0..6 {
        // The id can be reused: the name is free as soon as the rendezvous is complete.
        let group = me.join();
        group.all_reduce(memory.span, memory.span, 16, ElementType::U32, ReduceOp::Maximum, stream).unwrap();
        if turn == 3 {
            group.gather_bytes(b"").unwrap();
            group.abort();
        } else {
            synchronize(stream);
            assert!(group.error().is_none());
            group.gather_bytes(b"").unwrap();
        }
        drop(group);
        // Only the host device counts more than descriptors. This rank's memory counts until the others release it, and
        // threads end with a delay.
        let live = is_host.then(|| {
            let mut live = testing::live_resources().unwrap();
            (live.device_bytes, live.threads) = (Vec::new(), 0);
            live
        });
        let now = (descriptors(), live);
        if turn == 1 {
            before = Some(now);
        } else if turn > 1 {
            assert_eq!(before.as_ref(), Some(&now), "after group {turn}");
        }
    }
}

fn invalid_calls() {
    let device = 0;
    let id = ProcessGroup::new_id().unwrap();
    assert!(ProcessGroup::is_id(&id) && !ProcessGroup::is_id(&[7; 128]));
    let invalid = [
        ProcessGroup::join(&[7; 128], 0, 1, device, None),
        ProcessGroup::join(&id, 0, 0, device, None),
        ProcessGroup::join(&id, 2, 2, device, None),
        ProcessGroup::join(&id, 0, 17, device, None),
    ];
    for result in invalid {
        assert_eq!(result.unwrap_err().status(), Status::INVALID_VALUE);
    }
    assert_eq!(ProcessGroup::join(&id, 0, 1, 99, None).unwrap_err().status(), Status::INVALID_DEVICE);
    let group = ProcessGroup::join(&id, 0, 1, device, None).unwrap();
    let stream = new_stream(device);
    let memory = Memory::of(stream, &[0; 64]);
    let all = |from, to, count, op, stream| {
        group.all_reduce(memory.part(from, 64), memory.part(to, 64), count, ElementType::F32, op, stream)
    };
    let sum = ReduceOp::Sum;
    let status = |result: plinth_driver::error::Result<()>| result.unwrap_err().status();
    assert_eq!(status(all(0, 0, 17, sum, stream)), Status::INVALID_VALUE);
    assert_eq!(status(all(0, 0, u64::MAX / 2, sum, stream)), Status::INVALID_VALUE);
    if device_of(1) != device {
        assert_eq!(status(all(0, 0, 4, sum, new_stream(1))), Status::DEVICE_MISMATCH);
    }
    assert_eq!(
        status(group.broadcast(memory.span, memory.span, 4, ElementType::F32, 1, stream)),
        Status::INVALID_VALUE
    );
    all(0, 0, 16, sum, stream).unwrap();
    assert!(group.error().is_none());
}
