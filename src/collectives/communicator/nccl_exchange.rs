//! Small rows that the ranks of an NCCL communicator exchange through NCCL.

use super::{
    nccl::{self, IssueError, NcclRank},
    operation::{Kind, Operation},
};
use crate::{
    base::deadline::Deadline,
    error::{Error, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, tensor::ElementType},
    status::Status,
};
use std::{sync::Arc, time::Duration};

/// The bytes of a row.
pub(super) const ROW: usize = 192;
/// What a rank tells the others if it has not failed.
pub(super) type Payload = [u64; 2];
/// The part of the row of an outcome before the message of an error: the status, and the payload.
const HEAD: usize = 4 + size_of::<Payload>();

fn row_of(outcome: std::result::Result<Payload, &Error>) -> [u8; ROW] {
    let mut row = [0; ROW];
    match outcome {
        Ok([first, second]) => {
            row[4..12].copy_from_slice(&first.to_le_bytes());
            row[12..HEAD].copy_from_slice(&second.to_le_bytes());
        }
        Err(error) => {
            row[..4].copy_from_slice(&error.status().0.to_le_bytes());
            let text = error.message().as_bytes();
            let shown = text.len().min(ROW - HEAD);
            row[HEAD..HEAD + shown].copy_from_slice(&text[..shown]);
        }
    }
    row
}

fn outcome_of(rank: usize, row: &[u8; ROW]) -> Result<Payload> {
    let number = |start: usize| u64::from_le_bytes(std::array::from_fn(|index| row[start + index]));
    match i32::from_le_bytes(std::array::from_fn(|index| row[index])) {
        0 => Ok([number(4), number(12)]),
        status => {
            let text = String::from_utf8_lossy(&row[HEAD..]);
            Err(Error::new(Status(status), format!("rank {rank}: {}", text.trim_end_matches('\0'))))
        }
    }
}

/// Returns the outcomes of all ranks, each of which makes the call.
pub(super) fn exchange_outcomes(
    runtime: &Runtime,
    rank: &Arc<NcclRank>,
    own: std::result::Result<Payload, &Error>,
    limit: Duration,
) -> Result<Vec<Result<Payload>>> {
    let rows = exchange(runtime, rank, &row_of(own), limit)?;
    Ok(rows.iter().enumerate().map(|(rank, row)| outcome_of(rank, row)).collect())
}

/// Returns the rows of all ranks, each of which makes the call.
pub(super) fn exchange(
    runtime: &Runtime,
    rank: &Arc<NcclRank>,
    row: &[u8; ROW],
    limit: Duration,
) -> Result<Vec<[u8; ROW]>> {
    // Another thread may be capturing.
    runtime.driver.with_relaxed_capture(|| exchange_in_own_stream(runtime, rank, row, limit))?
}

fn exchange_in_own_stream(
    runtime: &Runtime,
    rank: &Arc<NcclRank>,
    row: &[u8; ROW],
    limit: Duration,
) -> Result<Vec<[u8; ROW]>> {
    let stream = rank.own_stream(runtime)?;
    let all = ROW * rank.size() as usize;
    let scratch = Scratch::alloc((ROW + all) as u64, stream)?;
    let (from, to) = (scratch.memory().part(0, ROW), scratch.memory().part(ROW, all));
    runtime.in_stream(stream, |driver, raw| Ok(driver.copy_from_host(from, row, raw)?))?;
    let operation = Operation { kind: Kind::AllGather, count: ROW as u64, element: ElementType::U8, from, to, stream };
    nccl::issue(runtime, &[(rank, &operation)], limit).map_err(IssueError::into_error)?;
    Deadline::new(limit).until(
        || "this rank waited for the others",
        || {
            rank.check_health()?;
            Ok(runtime.in_stream(stream, |driver, raw| Ok(driver.stream_query(raw)?))?.then_some(()))
        },
    )?;
    let mut bytes = vec![0; all];
    runtime.in_stream(stream, |driver, raw| Ok(driver.copy_to_host(&mut bytes, to, raw)?))?;
    Ok(bytes.chunks_exact(ROW).map(|chunk| std::array::from_fn(|index| chunk[index])).collect())
}
