//! Copies of many tensors to others of the same shapes and element types, with any strides, in few launches.

use super::{
    chunks::Chunks,
    stream_group::{StreamGroup, Workers},
    tuning::Threshold,
};
use crate::{
    error::Result,
    memory::reach::ensure_access,
    observe,
    ops::strided_copy::{self, Batch, StridedCopy, copy_contiguous, device_span},
    runtime::Runtime,
    stream::Stream,
};

/// Copies in a stream whose device has access to all tensors.
pub fn in_stream(runtime: &Runtime, stream: Stream, copies: &[StridedCopy]) -> Result<()> {
    let engine = Threshold::CopyEngine.bytes()?;
    let (mut runs, mut strided) = (Chunks::new(1, 1), Batch::default());
    for one in copies.iter().filter(|one| !one.is_noop()) {
        let (bytes, operands) = (one.from.bytes(), [one.from, one.to].map(device_span));
        if one.is_contiguous_copy() && bytes >= engine {
            copy_contiguous(runtime, stream, one)?;
        } else if one.is_contiguous_copy() {
            runs.push(bytes, operands);
        } else {
            let layout = one.layout();
            if layout.len() == 1 {
                runs.push(bytes, operands)
            } else {
                let used = [(one.from, observe::Kind::Read), (one.to, observe::Kind::Write)];
                observe::access_tensors(runtime, stream, &used)?;
                strided.push(one, layout);
            }
        }
    }
    runs.copy(runtime, stream)?;
    strided.launch(runtime, stream)
}

/// Copies between devices: with one launch if the working stream's device has access to all tensors.
pub fn copy_between_devices(group: &StreamGroup, copies: &[StridedCopy]) -> Result<()> {
    if copies.iter().all(StridedCopy::is_noop) {
        return Ok(());
    }
    let devices = copies.iter().flat_map(|one| [one.from.device, one.to.device]);
    if ensure_access(group.runtime, group.work.device(), devices)? {
        return group.run(Workers::One, |work| in_stream(group.runtime, work, copies));
    }
    group.run(Workers::All, |_| {
        copies.iter().filter(|one| !one.is_noop()).try_for_each(|one| copy_without_peer_access(group, one))
    })
}

fn copy_without_peer_access(group: &StreamGroup, one: &StridedCopy) -> Result<()> {
    let runtime = group.runtime;
    let (sender, receiver) = (group.stream_of(one.from.device)?, group.stream_of(one.to.device)?);
    if sender.device() == receiver.device() {
        return in_stream(runtime, sender, &[*one]);
    }
    strided_copy::without_peer_access(runtime, sender, receiver, one)
}
