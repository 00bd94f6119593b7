//! Devices, contexts, configuration, counting.

use super::*;
use crate::driver::{codes::*, table::Call};

#[test]
fn devices_present_their_model() {
    in_child("device::devices_present_their_model", &[("PLINTH_HOST_DEVICES", "3".into())], || {
        let t = setup(0);
        let mut count = 0;
        ok!(t.cuDeviceGetCount(&mut count));
        assert_eq!(count, 3);
        let mut name = [1; 32];
        ok!(t.cuDeviceGetName(name.as_mut_ptr(), 32, 2));
        let text: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        assert_eq!(text, b"NVIDIA H200");
        ok!(t.cuDeviceGetPCIBusId(name.as_mut_ptr(), 32, 2));
        let text: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        assert_eq!(text, b"0000:03:00.0");
        let mut value = 0;
        ok!(t.cuDeviceGetAttribute(&mut value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        assert_eq!(value, 132);
        assert_eq!(code!(t.cuDeviceGetAttribute(&mut value, 100_000, 0)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(code!(t.cuDeviceGet(&mut value, 3)), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(code!(t.cuDeviceGetCount(std::ptr::null_mut())), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuDeviceCanAccessPeer(&mut value, 0, 1));
        assert_eq!(value, 1);
        ok!(t.cuDeviceCanAccessPeer(&mut value, 1, 1));
        assert_eq!(value, 0);
        let mut version = 0;
        ok!(t.cuDriverGetVersion(&mut version));
        assert_eq!(version, 13_000);
    });
}

#[test]
fn nothing_works_before_initialisation() {
    in_child("device::nothing_works_before_initialisation", &[], || {
        let t = crate::table();
        let mut count = 0;
        assert_eq!(code!(t.cuDeviceGetCount(&mut count)), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(code!(t.cuStreamQuery(std::ptr::null_mut())), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(code!(t.cuInit(1)), CUDA_ERROR_INVALID_VALUE);
        ok!(t.cuInit(0));
        let mut device = 0;
        assert_eq!(code!(t.cuCtxGetDevice(&mut device)), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(code!(t.cuCtxSynchronize()), CUDA_ERROR_INVALID_CONTEXT);
        let mut active = 7;
        let mut flags = 7;
        ok!(t.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!((flags, active), (0, 0));
        context(&t, 0);
        ok!(t.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 1);
    });
}

#[test]
fn a_wrong_configuration_states_the_reason() {
    let wrong = [("PLINTH_HOST_MEMORY", "lots".to_owned())];
    in_child("device::a_wrong_configuration_states_the_reason", &wrong, || {
        let t = crate::table();
        assert_eq!(code!(t.cuInit(0)), CUDA_ERROR_INVALID_VALUE);
        assert!(crate::config_error().is_some_and(|reason| reason.contains("lots")));
    });
}

#[test]
fn no_visible_device_is_an_error() {
    in_child("device::no_visible_device_is_an_error", &[("CUDA_VISIBLE_DEVICES", String::new())], || {
        let t = crate::table();
        assert_eq!(code!(t.cuInit(0)), CUDA_ERROR_NO_DEVICE);
    });
}

#[test]
fn contexts_are_current_by_thread() {
    let t = setup(1);
    let (mut current, mut device) = (std::ptr::null_mut(), -1);
    ok!(t.cuCtxGetCurrent(&mut current));
    assert_eq!(current, context(&t, 1));
    ok!(t.cuCtxGetDevice(&mut device));
    assert_eq!(device, 1);
    std::thread::spawn(move || {
        let mut current = std::ptr::dangling_mut();
        ok!(t.cuCtxGetCurrent(&mut current));
        assert!(current.is_null());
    })
    .join()
    .expect("the thread succeeds");
    assert_eq!(code!(t.cuCtxSetCurrent(0x1234 as CUcontext)), CUDA_ERROR_INVALID_CONTEXT);
    ok!(t.cuCtxSetCurrent(std::ptr::null_mut()));
    assert_eq!(code!(t.cuCtxGetDevice(&mut device)), CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn peers_are_enabled_once() {
    in_child("device::peers_are_enabled_once", &[], || {
        let t = setup(0);
        let (own, peer) = (context(&t, 0), context(&t, 1));
        assert_eq!(code!(t.cuCtxDisablePeerAccess(peer)), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        ok!(t.cuCtxEnablePeerAccess(peer, 0));
        assert_eq!(code!(t.cuCtxEnablePeerAccess(peer, 0)), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        assert_eq!(code!(t.cuCtxEnablePeerAccess(own, 0)), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        assert_eq!(code!(t.cuCtxDisablePeerAccess(own)), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        ok!(t.cuCtxDisablePeerAccess(peer));
        assert_eq!(code!(t.cuCtxEnablePeerAccess(std::ptr::null_mut(), 0)), CUDA_ERROR_INVALID_CONTEXT);
    });
}

#[test]
fn calls_are_counted_and_priced() {
    in_child("device::calls_are_counted_and_priced", &[], || {
        let t = setup(0);
        crate::reset_counts();
        let handle = create(&t, 0, 32 * MIB, 0);
        ok!(t.cuMemRelease(handle));
        assert_eq!(code!(t.cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(crate::call_count(Call::cuMemCreate), 1);
        assert_eq!(crate::call_cost(Call::cuMemCreate), 7000);
        let (pointer, first, second) = (reserve(&t, 2 * GRANULE), create(&t, 0, GRANULE, 0), create(&t, 0, GRANULE, 0));
        ok!(t.cuMemMap(pointer, GRANULE, 0, first, 0));
        ok!(t.cuMemMap(pointer + GRANULE as u64, GRANULE, 0, second, 0));
        ok!(t.cuMemSetAccess(pointer, 2 * GRANULE, &access(0, 3), 1));
        assert_eq!(crate::call_cost(Call::cuMemSetAccess), 2 * 21_000);
        assert_eq!(crate::call_count(Call::cuMemRelease), 2);
        assert_eq!(crate::call_cost(Call::cuMemRelease), 15_000 + 8000);
    });
}

#[test]
fn prices_are_charged_when_asked() {
    in_child("device::prices_are_charged_when_asked", &[("PLINTH_HOST_COSTS", "spin".into())], || {
        let t = setup(0);
        let start = Instant::now();
        for _ in 0..100 {
            let handle = create(&t, 0, 2 * MIB, 0);
            ok!(t.cuMemRelease(handle));
        }
        assert!(start.elapsed() >= Duration::from_nanos(100 * (7500 + 8000)));
    });
}
