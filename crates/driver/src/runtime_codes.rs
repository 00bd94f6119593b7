//! The error codes of the CUDA runtime, `cudaError_t`, with their names. Most numbers are also those of the driver, and mean
//! the same.

use super::{codes, error::Error, status::Status, table::Code};

/// The names (driver_types.h of CUDA 13.0).
const NAMES: &[(Code, &str)] = &[
    (0, "cudaSuccess"),
    (1, "cudaErrorInvalidValue"),
    (2, "cudaErrorMemoryAllocation"),
    (3, "cudaErrorInitializationError"),
    (4, "cudaErrorCudartUnloading"),
    (5, "cudaErrorProfilerDisabled"),
    (6, "cudaErrorProfilerNotInitialized"),
    (7, "cudaErrorProfilerAlreadyStarted"),
    (8, "cudaErrorProfilerAlreadyStopped"),
    (9, "cudaErrorInvalidConfiguration"),
    (12, "cudaErrorInvalidPitchValue"),
    (13, "cudaErrorInvalidSymbol"),
    (16, "cudaErrorInvalidHostPointer"),
    (17, "cudaErrorInvalidDevicePointer"),
    (18, "cudaErrorInvalidTexture"),
    (19, "cudaErrorInvalidTextureBinding"),
    (20, "cudaErrorInvalidChannelDescriptor"),
    (21, "cudaErrorInvalidMemcpyDirection"),
    (22, "cudaErrorAddressOfConstant"),
    (23, "cudaErrorTextureFetchFailed"),
    (24, "cudaErrorTextureNotBound"),
    (25, "cudaErrorSynchronizationError"),
    (26, "cudaErrorInvalidFilterSetting"),
    (27, "cudaErrorInvalidNormSetting"),
    (28, "cudaErrorMixedDeviceExecution"),
    (31, "cudaErrorNotYetImplemented"),
    (32, "cudaErrorMemoryValueTooLarge"),
    (34, "cudaErrorStubLibrary"),
    (35, "cudaErrorInsufficientDriver"),
    (36, "cudaErrorCallRequiresNewerDriver"),
    (37, "cudaErrorInvalidSurface"),
    (43, "cudaErrorDuplicateVariableName"),
    (44, "cudaErrorDuplicateTextureName"),
    (45, "cudaErrorDuplicateSurfaceName"),
    (46, "cudaErrorDevicesUnavailable"),
    (49, "cudaErrorIncompatibleDriverContext"),
    (52, "cudaErrorMissingConfiguration"),
    (53, "cudaErrorPriorLaunchFailure"),
    (65, "cudaErrorLaunchMaxDepthExceeded"),
    (66, "cudaErrorLaunchFileScopedTex"),
    (67, "cudaErrorLaunchFileScopedSurf"),
    (68, "cudaErrorSyncDepthExceeded"),
    (69, "cudaErrorLaunchPendingCountExceeded"),
    (98, "cudaErrorInvalidDeviceFunction"),
    (100, "cudaErrorNoDevice"),
    (101, "cudaErrorInvalidDevice"),
    (102, "cudaErrorDeviceNotLicensed"),
    (103, "cudaErrorSoftwareValidityNotEstablished"),
    (127, "cudaErrorStartupFailure"),
    (200, "cudaErrorInvalidKernelImage"),
    (201, "cudaErrorDeviceUninitialized"),
    (205, "cudaErrorMapBufferObjectFailed"),
    (206, "cudaErrorUnmapBufferObjectFailed"),
    (207, "cudaErrorArrayIsMapped"),
    (208, "cudaErrorAlreadyMapped"),
    (209, "cudaErrorNoKernelImageForDevice"),
    (210, "cudaErrorAlreadyAcquired"),
    (211, "cudaErrorNotMapped"),
    (212, "cudaErrorNotMappedAsArray"),
    (213, "cudaErrorNotMappedAsPointer"),
    (214, "cudaErrorECCUncorrectable"),
    (215, "cudaErrorUnsupportedLimit"),
    (216, "cudaErrorDeviceAlreadyInUse"),
    (217, "cudaErrorPeerAccessUnsupported"),
    (218, "cudaErrorInvalidPtx"),
    (219, "cudaErrorInvalidGraphicsContext"),
    (220, "cudaErrorNvlinkUncorrectable"),
    (221, "cudaErrorJitCompilerNotFound"),
    (222, "cudaErrorUnsupportedPtxVersion"),
    (223, "cudaErrorJitCompilationDisabled"),
    (224, "cudaErrorUnsupportedExecAffinity"),
    (225, "cudaErrorUnsupportedDevSideSync"),
    (226, "cudaErrorContained"),
    (300, "cudaErrorInvalidSource"),
    (301, "cudaErrorFileNotFound"),
    (302, "cudaErrorSharedObjectSymbolNotFound"),
    (303, "cudaErrorSharedObjectInitFailed"),
    (304, "cudaErrorOperatingSystem"),
    (400, "cudaErrorInvalidResourceHandle"),
    (401, "cudaErrorIllegalState"),
    (402, "cudaErrorLossyQuery"),
    (500, "cudaErrorSymbolNotFound"),
    (600, "cudaErrorNotReady"),
    (700, "cudaErrorIllegalAddress"),
    (701, "cudaErrorLaunchOutOfResources"),
    (702, "cudaErrorLaunchTimeout"),
    (703, "cudaErrorLaunchIncompatibleTexturing"),
    (704, "cudaErrorPeerAccessAlreadyEnabled"),
    (705, "cudaErrorPeerAccessNotEnabled"),
    (708, "cudaErrorSetOnActiveProcess"),
    (709, "cudaErrorContextIsDestroyed"),
    (710, "cudaErrorAssert"),
    (711, "cudaErrorTooManyPeers"),
    (712, "cudaErrorHostMemoryAlreadyRegistered"),
    (713, "cudaErrorHostMemoryNotRegistered"),
    (714, "cudaErrorHardwareStackError"),
    (715, "cudaErrorIllegalInstruction"),
    (716, "cudaErrorMisalignedAddress"),
    (717, "cudaErrorInvalidAddressSpace"),
    (718, "cudaErrorInvalidPc"),
    (719, "cudaErrorLaunchFailure"),
    (720, "cudaErrorCooperativeLaunchTooLarge"),
    (721, "cudaErrorTensorMemoryLeak"),
    (800, "cudaErrorNotPermitted"),
    (801, "cudaErrorNotSupported"),
    (802, "cudaErrorSystemNotReady"),
    (803, "cudaErrorSystemDriverMismatch"),
    (804, "cudaErrorCompatNotSupportedOnDevice"),
    (805, "cudaErrorMpsConnectionFailed"),
    (806, "cudaErrorMpsRpcFailure"),
    (807, "cudaErrorMpsServerNotReady"),
    (808, "cudaErrorMpsMaxClientsReached"),
    (809, "cudaErrorMpsMaxConnectionsReached"),
    (810, "cudaErrorMpsClientTerminated"),
    (811, "cudaErrorCdpNotSupported"),
    (812, "cudaErrorCdpVersionMismatch"),
    (900, "cudaErrorStreamCaptureUnsupported"),
    (901, "cudaErrorStreamCaptureInvalidated"),
    (902, "cudaErrorStreamCaptureMerge"),
    (903, "cudaErrorStreamCaptureUnmatched"),
    (904, "cudaErrorStreamCaptureUnjoined"),
    (905, "cudaErrorStreamCaptureIsolation"),
    (906, "cudaErrorStreamCaptureImplicit"),
    (907, "cudaErrorCapturedEvent"),
    (908, "cudaErrorStreamCaptureWrongThread"),
    (909, "cudaErrorTimeout"),
    (910, "cudaErrorGraphExecUpdateFailure"),
    (911, "cudaErrorExternalDevice"),
    (912, "cudaErrorInvalidClusterSize"),
    (913, "cudaErrorFunctionNotLoaded"),
    (914, "cudaErrorInvalidResourceType"),
    (915, "cudaErrorInvalidResourceConfiguration"),
    (999, "cudaErrorUnknown"),
    (10000, "cudaErrorApiFailureBase"),
];

/// What the codes mean that the driver does not have.
const TEXTS: &[(Code, &str)] = &[
    (9, "the launch's configuration is not possible on the device"),
    (12, "a pitch is out of range"),
    (13, "the symbol is unknown"),
    (16, "the pointer is not a host pointer"),
    (17, "the pointer is not a device pointer"),
    (18, "the texture is not valid"),
    (19, "the texture is not bound correctly"),
    (20, "the channel descriptor is not valid"),
    (21, "the direction of the copy is not valid"),
    (22, "the address of a constant was taken where that is not possible"),
    (23, "a texture could not be fetched"),
    (24, "the texture is not bound"),
    (25, "a synchronization failed"),
    (26, "the texture's filter setting is not valid"),
    (27, "the texture's normalization setting is not valid"),
    (28, "device code and emulated code were mixed"),
    (31, "the call is not implemented"),
    (32, "an emulated pointer exceeds 32 bits"),
    (35, "the driver is older than the CUDA runtime"),
    (37, "the surface is not valid"),
    (43, "two variables have the same name"),
    (44, "two textures have the same name"),
    (45, "two surfaces have the same name"),
    (49, "the context was made by another version of the driver interface"),
    (52, "the launch was not configured"),
    (53, "an earlier launch failed"),
    (65, "launches on the device are nested too deep"),
    (66, "a kernel launched on the device uses a texture of file scope"),
    (67, "a kernel launched on the device uses a surface of file scope"),
    (68, "synchronizations on the device are nested too deep"),
    (69, "too many launches on the device are pending"),
    (98, "the function is no kernel, or was not compiled for the device"),
    (103, "the driver could not verify its own software"),
    (127, "the CUDA runtime could not start"),
    (10000, "an error of an internal interface"),
];

/// Returns the name of a code of the runtime, and what it means.
fn lookup(code: Code) -> Option<(&'static str, &'static str)> {
    let own = |list: &[(Code, &'static str)]| list.iter().find(|(number, _)| *number == code).map(|(_, text)| *text);
    let text = own(TEXTS).or_else(|| codes::lookup(code).map(|(_, text)| text.trim_end_matches('\0')));
    // Codes that the driver got after this list was made.
    let name = own(NAMES).or_else(|| codes::lookup(code).map(|(name, _)| name.trim_end_matches('\0')));
    Some((name?, text?))
}

/// Returns the error that a code of the runtime stands for; `None` for success.
pub fn error(code: Code) -> Option<Error> {
    if code == codes::CUDA_SUCCESS {
        return None;
    }
    let status = match code {
        9 | 12 | 13 | 16..=21 | 26 | 27 | 37 | 98 => Status::INVALID_VALUE,
        35 => Status::DRIVER_TOO_OLD,
        _ => Status::of_driver_code(code),
    };
    let message = match lookup(code) {
        Some((name, text)) => format!("{name} ({code}): {text}"),
        None => format!("unknown CUDA error {}", code as i32),
    };
    Some(Error::new(status, message).with_driver_code(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_and_a_text() {
        assert!(NAMES.is_sorted_by(|(one, _), (next, _)| one < next));
        for (code, name) in NAMES {
            let (found, text) = lookup(*code).unwrap_or_default();
            assert_eq!(found, *name);
            assert!(!text.is_empty(), "{name}");
            // The same number in both lists would have two texts.
            assert!(TEXTS.iter().all(|(own, _)| own != code) || codes::lookup(*code).is_none(), "{name}");
        }
    }

    #[test]
    fn errors_have_the_status_of_the_drivers_code() {
        assert!(error(0).is_none());
        for (code, status, text) in [
            (2, Status::OUT_OF_MEMORY, "cudaErrorMemoryAllocation (2): the device has not enough free memory"),
            (12, Status::INVALID_VALUE, "cudaErrorInvalidPitchValue (12): a pitch is out of range"),
            (35, Status::DRIVER_TOO_OLD, "cudaErrorInsufficientDriver (35): the driver is older than the CUDA runtime"),
            (700, Status::ILLEGAL_ADDRESS, "cudaErrorIllegalAddress (700): the device accessed an illegal address"),
            (917, Status::DRIVER, "CUDA_ERROR_STREAM_DETACHED (917): the stream is detached from its context"),
            (123_456, Status::DRIVER, "unknown CUDA error 123456"),
        ] {
            let error = error(code).unwrap();
            assert_eq!((error.status(), error.message(), error.driver_code()), (status, text, code));
        }
    }
}
