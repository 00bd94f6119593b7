//! The errors for what the kernels of a group report.

use super::calls::{ELEMENTS, OPS};
use crate::{
    driver::group::{FailureReport, Mode, Reason, TRANSFER, read_place},
    error::Error,
    status::Status,
};

/// Describes the registered memory of a launch by its header.
fn describe_memory(header: &[u64; 4]) -> String {
    let of = |what, place| {
        read_place(place).map(|(registered, offset)| format!(" {what} byte {offset} of registration {registered}"))
    };
    let all = [of("from", header[2]), of("to", header[3])].into_iter().flatten().collect::<String>();
    if all.is_empty() { " in memory that is not registered".into() } else { all }
}

/// Describes a launch by its header.
fn describe(header: &[u64; 4]) -> String {
    let [kind, count, ..] = *header;
    let root = kind >> 24 & 0xFF;
    let element =
        ELEMENTS.get((kind >> 16 & 0xFF) as usize).map_or("unknown elements".into(), |(of, _)| of.to_string());
    if kind as u32 & 0xFF == TRANSFER {
        return format!("a transfer of {count} bytes of {element}");
    }
    let op = OPS.get((kind >> 8 & 0xFF) as usize).map_or("unknown", |op| op.name());
    let name = match Mode::ALL.get((kind & 0xFF) as usize) {
        Some(Mode::AllGather) => "all_gather".into(),
        Some(Mode::AllToAll) => "all_to_all".into(),
        Some(Mode::Broadcast | Mode::BroadcastParts) => format!("broadcast from rank {root}"),
        Some(Mode::ReduceScatter) => format!("reduce_scatter ({op})"),
        Some(Mode::AllReduce | Mode::AllReduceParts) => format!("all_reduce ({op})"),
        Some(Mode::Reduce | Mode::ReduceParts) => format!("reduce ({op}) to rank {root}"),
        None => "an unknown call".into(),
    };
    format!("{name} of {count} {element}")
}

/// Returns the error of a kernel's report, for a rank of the group.
pub fn explain(rank: u32, size: u32, failure: &FailureReport) -> Error {
    let Some((reason, about)) = Reason::read(failure.word) else {
        return Error::new(Status::PANIC, format!("the group's kernels reported {:#x}", failure.word));
    };
    let own = failure.by == rank;
    let finder = if own { format!("rank {rank} of {size}") } else { format!("rank {} of {size}", failure.by) };
    match reason {
        Reason::Timeout => Error::new(Status::TIMED_OUT, format!("{finder} waited too long for rank {about}")),
        Reason::Aborted => Error::new(Status::ABORTED, format!("rank {about} of {size} aborted the group")),
        Reason::Lost => Error::new(Status::PEER_LOST, format!("rank {about} of {size} is gone")),
        Reason::Mismatch if own && failure.own == failure.other && failure.own != [0; 4] => Error::new(
            Status::RANK_MISMATCH,
            format!(
                "collective mismatch: rank {about} refers to registered memory that rank {rank} of {size} does not have, in \
                 {}; register and deregister memory at the same point of the calls of all ranks",
                describe(&failure.own)
            ),
        ),
        Reason::Mismatch if own && failure.own != failure.other => {
            let mut calls = [&failure.own, &failure.other].map(describe);
            if failure.own[2..] != failure.other[2..] && calls[0] == calls[1] {
                calls[0] += &describe_memory(&failure.own);
                calls[1] += &describe_memory(&failure.other);
            }
            let message = format!(
                "collective mismatch: rank {rank} of {size} calls {}, rank {about} calls {}",
                calls[0], calls[1]
            );
            Error::new(Status::RANK_MISMATCH, message)
        }
        // Found by another rank, or by the CPU, which has no headers of launches.
        Reason::Mismatch => {
            Error::new(Status::RANK_MISMATCH, format!("{finder} reported a collective mismatch with rank {about}"))
        }
    }
}
