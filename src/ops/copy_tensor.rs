//! Copies of tensors: `torch.Tensor.copy_`.

use super::{
    copy::{DeviceSpan, check_may_wait, copy_peer, is_pageable, record_pinned_use, wait},
    host_copy::{enqueue_download, enqueue_upload, is_on_cpu},
    strided_copy::{self, StridedCopy},
};
use crate::{
    error::{Context, Error, Result, invalid},
    memory::reach::ensure_access,
    observe,
    runtime::{self, Runtime, sync_debug, tensor::Tensor},
    stream,
};

/// Copies the elements of a tensor, which are converted to the type of the destination and broadcast to its shape, in the
/// current streams of the tensors' devices.
///
/// Within a device, and between host and device, the copy runs in the device's current stream; between devices in the
/// source's, after the present work of the destination's and before its later work. Between two tensors of the CPU the
/// call waits for the current stream of the current device, and the CPU copies.
pub fn copy_tensor(destination: &Tensor, source: &Tensor, non_blocking: bool) -> Result<()> {
    let runtime = runtime::ready()?;
    for (tensor, name) in [(destination, "destination"), (source, "source")] {
        check(runtime, tensor, name)?;
    }
    check_destination(destination, source)?;
    let source = &broadcast(source, destination)?;
    let one = StridedCopy { from: source, to: destination };
    if one.is_noop() {
        return Ok(());
    }
    let copied = match (is_on_cpu(source), is_on_cpu(destination)) {
        (false, false) if source.device == destination.device => {
            strided_copy::in_stream(runtime, stream::current_on(runtime, source.device)?, &one)
        }
        (false, false) => between_devices(runtime, &one),
        (true, true) => on_host(runtime, &one),
        (is_upload, _) => with_host(runtime, &one, is_upload, non_blocking),
    };
    copied.context(|| {
        let (from, to) = (source.element, destination.element);
        format!("copying {} elements of {from} to {to}", destination.numel)
    })
}

fn check(runtime: &Runtime, tensor: &Tensor, name: &str) -> Result<()> {
    if !is_on_cpu(tensor) {
        runtime.device(tensor.device as i32).map_err(|error| error.context(name))?;
    }
    if tensor.numel > 0 && !has_valid_extent(tensor) {
        return Err(invalid(format!("{name}: its strides lead outside of all addresses")));
    }
    Ok(())
}

/// Returns whether all elements have addresses, and none of them is further from the first than a stride can say.
fn has_valid_extent(tensor: &Tensor) -> bool {
    let width = i128::from(tensor.element.bytes());
    let (mut low, mut high) = (i128::from(tensor.memory.address()), i128::from(tensor.memory.address()) + width);
    for (size, stride) in tensor.shape().iter().zip(&tensor.strides) {
        let reach = (i128::from(*size) - 1) * i128::from(*stride);
        // 2^63 bytes in one dimension are too many; below that, the sums of 25 dimensions do not overflow.
        if reach.unsigned_abs().saturating_mul(width as u128) >= 1 << 63 {
            return false;
        }
        (low, high) = (low + reach.min(0) * width, high + reach.max(0) * width);
    }
    low > 0 && high <= i128::from(u64::MAX) && high - low < 1 << 63
}

/// Refuses a destination with several elements in one place, and tensors that share a part of their memory: torch's
/// rules. As in torch, a tensor that is not dense is not compared with the other.
fn check_destination(destination: &Tensor, source: &Tensor) -> Result<()> {
    let shape = destination.shape().iter().zip(&destination.strides);
    if destination.numel > 0
        && let Some(dimension) = shape.clone().position(|(size, stride)| *size > 1 && *stride == 0)
    {
        return Err(invalid(format!(
            "destination: dimension {dimension} has {} elements in one place; copy to a tensor whose elements have \
             places of their own",
            destination.sizes[dimension]
        )));
    }
    if destination.numel == 0 || source.numel == 0 || !destination.is_dense() || !source.is_dense() {
        return Ok(());
    }
    let ends = |tensor: &Tensor| (tensor.memory.address(), tensor.memory.address() + tensor.bytes());
    let ((to, to_end), (from, from_end)) = (ends(destination), ends(source));
    let strides = |tensor: &Tensor| tensor.strides[..tensor.rank].to_vec();
    let is_same = (to, to_end) == (from, from_end) && strides(destination) == strides(source);
    if is_same || to >= from_end || from >= to_end {
        return Ok(());
    }
    Err(invalid("destination and source share a part of their memory; copy through a third tensor"))
}

/// Returns the source with the shape of the destination.
fn broadcast(source: &Tensor, destination: &Tensor) -> Result<Tensor> {
    let missing = destination.rank.checked_sub(source.rank);
    let mut wide = Tensor { rank: destination.rank, numel: destination.numel, ..*destination };
    (wide.memory, wide.element, wide.device) = (source.memory, source.element, source.device);
    for dimension in 0..destination.rank {
        let own = missing.and_then(|missing| dimension.checked_sub(missing));
        let (size, stride) = own.map_or((1, 0), |own| (source.sizes[own], source.strides[own]));
        wide.strides[dimension] = if size == destination.sizes[dimension] { stride } else { 0 };
        if missing.is_none() || (size != 1 && size != destination.sizes[dimension]) {
            return Err(cannot_broadcast(source, destination));
        }
    }
    if missing.is_none() { Err(cannot_broadcast(source, destination)) } else { Ok(wide) }
}

#[cold]
fn cannot_broadcast(source: &Tensor, destination: &Tensor) -> Error {
    invalid(format!(
        "source has shape {:?}, which cannot be broadcast to the destination's shape {:?}; each dimension, counted from \
         the last, must be 1 or that of the destination",
        source.shape(),
        destination.shape()
    ))
}

/// Copies between host and device.
fn with_host(runtime: &Runtime, one: &StridedCopy, is_upload: bool, non_blocking: bool) -> Result<()> {
    let (host, device) = if is_upload { (one.from, one.to) } else { (one.to, one.from) };
    let stream = stream::current_on(runtime, device.device)?;
    if !non_blocking {
        check_may_wait(runtime, stream, &[host.memory])?;
        sync_debug::check("plinth_copy_tensor between host and device")?;
    } else if sync_debug::is_on() && is_pageable(runtime, host.memory)? {
        sync_debug::check("plinth_copy_tensor with pageable host memory")?;
    }
    record_pinned_use(runtime, &[host.memory], stream)?;
    if is_upload { enqueue_upload(runtime, stream, one) } else { enqueue_download(runtime, stream, one) }?;
    if non_blocking { Ok(()) } else { wait(runtime, stream) }
}

/// Copies between two devices.
fn between_devices(runtime: &Runtime, one: &StridedCopy) -> Result<()> {
    let sender = stream::current_on(runtime, one.from.device)?;
    let receiver = stream::current_on(runtime, one.to.device)?;
    let is_run = one.layout().len() == 1 && !one.converts();
    let has_access = !is_run && ensure_access(runtime, sender.device(), [receiver.device()])?;
    stream::make_wait(runtime, sender, receiver)?;
    let copied = if is_run {
        let [from, to] = [one.from, one.to].map(|tensor| DeviceSpan { span: tensor.memory, device: tensor.device });
        copy_peer(runtime, sender, from, to, one.from.bytes())
    } else if has_access {
        strided_copy::in_stream(runtime, sender, one)
    } else {
        strided_copy::without_peer_access(runtime, sender, receiver, one)
    };
    // Also if the copy failed, because a part of it may be enqueued.
    let ordered = stream::make_wait(runtime, receiver, sender);
    copied.and(ordered)
}

/// Copies between two tensors of the CPU, after the present work of the current stream.
fn on_host(runtime: &Runtime, one: &StridedCopy) -> Result<()> {
    sync_debug::check("plinth_copy_tensor between two places of host memory")?;
    let stream = stream::current_on(runtime, runtime.current_device()?.ordinal)?;
    check_may_wait(runtime, stream, &[one.to.memory, one.from.memory])?;
    observe::copy_tensor(runtime, stream, one.to, one.from)?;
    wait(runtime, stream)?;
    strided_copy::on_cpu(one);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    fn tensor(address: u64, shape: &[i64], strides: Option<&[i64]>) -> Tensor {
        Tensor::new(Span::dangling(address), ElementType::F32, 0, shape, strides).unwrap()
    }

    #[test]
    fn sources_are_broadcast_as_in_torch() {
        let to = tensor(4096, &[2, 3, 4], None);
        for (shape, strides) in [
            (&[2, 3, 4][..], &[12, 4, 1][..]),
            (&[4], &[0, 0, 1]),
            (&[3, 1], &[0, 1, 0]),
            (&[], &[0, 0, 0]),
            (&[1, 1, 4], &[0, 0, 1]),
        ] {
            let wide = broadcast(&tensor(8192, shape, None), &to).unwrap();
            assert_eq!((wide.shape(), &wide.strides[..3], wide.numel), (to.shape(), strides, 24), "{shape:?}");
        }
        for wrong in [&[3][..], &[2, 4], &[1, 2, 3, 4], &[0]] {
            let error = broadcast(&tensor(8192, wrong, None), &to).unwrap_err();
            assert!(error.message().contains("cannot be broadcast to the destination's shape [2, 3, 4]"), "{wrong:?}");
        }
        assert!(broadcast(&tensor(8192, &[1], None), &tensor(4096, &[], None)).is_err());
        assert_eq!(broadcast(&tensor(8192, &[1], None), &tensor(4096, &[0], None)).unwrap().numel, 0);
    }

    #[test]
    fn shared_memory_is_refused_as_in_torch() {
        let to = tensor(4096, &[2, 3], None);
        assert!(check_destination(&tensor(4096, &[2, 3], Some(&[0, 1])), &to).is_err());
        assert!(check_destination(&tensor(4096, &[1, 3], Some(&[0, 1])), &tensor(8192, &[3], None)).is_ok());
        assert!(check_destination(&to, &to).is_ok());
        assert!(check_destination(&to, &tensor(4096 + 24, &[2, 3], None)).is_ok());
        assert!(check_destination(&to, &tensor(4096 + 20, &[2, 3], None)).is_err());
        assert!(check_destination(&to, &tensor(4096, &[2, 3], Some(&[1, 2]))).is_err());
        // Not dense, so not compared.
        assert!(check_destination(&to, &tensor(4096, &[2, 3], Some(&[4, 1]))).is_ok());
    }

    #[test]
    fn extents_stay_within_the_addresses() {
        assert!(has_valid_extent(&tensor(4096, &[2, 3], Some(&[-100, 1]))));
        assert!(!has_valid_extent(&tensor(4096, &[2, 3], Some(&[-1024, 1]))));
        assert!(!has_valid_extent(&tensor(4096, &[3, 3], Some(&[i64::MAX, 1]))));
        assert!(has_valid_extent(&tensor(u64::MAX - 4095, &[1023], None)));
        assert!(!has_valid_extent(&tensor(u64::MAX - 4095, &[1024], None)));
    }
}
