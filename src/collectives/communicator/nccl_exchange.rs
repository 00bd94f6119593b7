//! Small rows that the ranks of an NCCL communicator exchange through NCCL.

use super::{
    nccl::{self, IssueError, NcclRank},
    operation::{Kind, Operation},
};
use crate::{
    base::deadline::Deadline,
    error::Result,
    memory::scratch::Scratch,
    runtime::{Runtime, tensor::ElementType},
    stream::{self, Stream},
};
use std::{sync::Arc, time::Duration};

/// The bytes of a row.
pub(super) const ROW: usize = 192;

/// Returns the rows of all ranks, each of which makes the call.
pub(super) fn exchange(
    runtime: &Runtime,
    rank: &Arc<NcclRank>,
    row: &[u8; ROW],
    limit: Duration,
) -> Result<Vec<[u8; ROW]>> {
    let stream: Stream = stream::resolve(runtime, stream::create(rank.device() as i32, 0)?)?;
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
