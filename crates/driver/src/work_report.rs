//! What work of the host device reported when it failed. CUDA's error codes have no place for it.

use super::{codes, table::Code};
use parking_lot::Mutex;

static LAST: Mutex<Option<(Code, String)>> = Mutex::new(None);

/// Stores the report of work that failed, or removes the last one if work failed that has no report.
pub fn set(report: Option<(Code, String)>) {
    *LAST.lock() = report;
}

/// Returns the last report, if it is about this code.
pub fn get(code: Code) -> Option<String> {
    if !matches!(code, codes::CUDA_ERROR_ASSERT | codes::CUDA_ERROR_LAUNCH_FAILED | codes::CUDA_ERROR_ILLEGAL_ADDRESS) {
        return None;
    }
    LAST.lock().as_ref().filter(|(reported, _)| *reported == code).map(|(_, text)| text.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_about_one_code() {
        set(Some((codes::CUDA_ERROR_ASSERT, "kernel f".to_owned())));
        assert_eq!(get(codes::CUDA_ERROR_ASSERT).as_deref(), Some("kernel f"));
        assert_eq!(get(codes::CUDA_ERROR_LAUNCH_FAILED), None);
        set(None);
        assert_eq!(get(codes::CUDA_ERROR_ASSERT), None);
    }
}
