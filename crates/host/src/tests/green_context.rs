//! Green contexts: partitions, context handles, and streams.

use super::*;
use crate::driver::codes::*;
use std::ptr::null_mut;

fn whole(t: &Table, device: i32) -> DevResource {
    let mut whole = DevResource::NOTHING;
    ok!(t.cuDeviceGetDevResource(device, &mut whole, CU_DEV_RESOURCE_TYPE_SM));
    whole
}

fn split(t: &Table, whole: &DevResource, requested: u32, least: u32) -> Result<Vec<u32>, u32> {
    let mut parts = [DevResource::NOTHING; 32];
    let (mut count, mut rest) = (requested, DevResource::NOTHING);
    match code!(t.cuDevSmResourceSplitByCount(parts.as_mut_ptr(), &mut count, whole, &mut rest, 0, least)) {
        0 => {
            assert_eq!(parts[..count as usize].iter().map(|part| part.count).sum::<u32>() + rest.count, whole.count);
            Ok(parts[..count as usize].iter().map(|part| part.count).collect())
        }
        code => Err(code),
    }
}

fn new_green(t: &Table, device: i32, least: u32) -> CUgreenCtx {
    let (mut part, mut count) = (DevResource::NOTHING, 1);
    let (mut description, mut green) = (null_mut(), null_mut());
    ok!(t.cuDevSmResourceSplitByCount(&mut part, &mut count, &whole(t, device), null_mut(), 0, least));
    ok!(t.cuDevResourceGenerateDesc(&mut description, &mut part, 1));
    let wrong = code!(t.cuGreenCtxCreate(&mut green, description, 1 - device, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_eq!((wrong, green), (CUDA_ERROR_INVALID_VALUE, null_mut()));
    ok!(t.cuGreenCtxCreate(&mut green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    green
}

#[test]
fn partitions_are_rounded_as_on_the_gpu() {
    let t = setup(0);
    let whole = whole(&t, 0);
    assert_eq!((whole.count, whole.least_partition, whole.alignment), (132, 8, 8));
    assert_eq!(split(&t, &whole, 1, 1).unwrap(), [8]);
    assert_eq!(split(&t, &whole, 3, 33).unwrap(), [40, 40, 40]);
    assert_eq!(split(&t, &whole, 4, 33).unwrap(), [40, 40, 40]);
    assert_eq!(split(&t, &whole, 1, 128).unwrap(), [128]);
    assert_eq!(split(&t, &whole, 1, 129), Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
    assert_eq!(split(&t, &whole, 1, 133), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(split(&t, &DevResource::NOTHING, 1, 8), Err(CUDA_ERROR_INVALID_RESOURCE_TYPE));
    let mut other = DevResource::NOTHING;
    assert_eq!(code!(t.cuDeviceGetDevResource(0, &mut other, 7)), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    let mut count = 0;
    ok!(t.cuDevSmResourceSplitByCount(null_mut(), &mut count, &whole, null_mut(), 0, 16));
    assert_eq!(count, 8);
}

#[test]
fn a_green_context_is_a_context_of_its_device() {
    let t = setup(0);
    let green = new_green(&t, 1, 16);
    let (mut as_context, mut device, mut stream, mut made, mut of) =
        (null_mut(), -1, null_mut(), null_mut(), null_mut());
    ok!(t.cuCtxFromGreenCtx(&mut as_context, green));
    assert_ne!(as_context, context(&t, 1));
    ok!(t.cuCtxSetCurrent(as_context));
    ok!(t.cuCtxGetDevice(&mut device));
    assert_eq!(device, 1);
    ok!(t.cuStreamCreateWithPriority(&mut made, CU_STREAM_NON_BLOCKING, 0));
    ok!(t.cuCtxSetCurrent(context(&t, 0)));
    assert_eq!(code!(t.cuGreenCtxStreamCreate(&mut stream, green, 0, 0)), CUDA_ERROR_INVALID_VALUE);
    ok!(t.cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_NON_BLOCKING, -2));
    for stream in [made, stream] {
        ok!(t.cuStreamGetCtx(stream, &mut of));
        assert_eq!(of, as_context);
    }
    let log = Log::default();
    (0..20).for_each(|entry| log.note(&t, stream, entry));
    ok!(t.cuStreamSynchronize(stream));
    assert_eq!(log.entries(), (0..20).collect::<Vec<_>>());
    ok!(t.cuGreenCtxDestroy(green));
    assert_eq!(code!(t.cuStreamQuery(stream)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(code!(t.cuStreamDestroy_v2(made)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(code!(t.cuCtxSetCurrent(as_context)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(code!(t.cuGreenCtxDestroy(green)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(
        code!(t.cuGreenCtxStreamCreate(&mut stream, green, CU_STREAM_NON_BLOCKING, 0)),
        CUDA_ERROR_INVALID_CONTEXT
    );
}
