//! Whether memory can be shared with other processes: `PLINTH_IPC`.

use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;

const VARIABLE: &str = "PLINTH_IPC";

/// The value of `PLINTH_IPC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Memory is allocated so that it can be shared.
    On,
    /// Memory cannot be shared.
    Off,
    /// Memory can be shared, and the sender synchronizes with the device, so that the receiver need not open an event.
    Wait,
}

fn parse(text: &str) -> Result<Mode> {
    match text.trim() {
        "" | "1" => Ok(Mode::On),
        "0" => Ok(Mode::Off),
        "wait" => Ok(Mode::Wait),
        other => {
            Err(Error::new(Status::INVALID_CONFIGURATION, format!("{VARIABLE} is {other:?}; set it to 1, 0 or wait")))
        }
    }
}

/// Returns the mode, which is read from the environment once.
pub fn mode() -> Result<Mode> {
    static MODE: OnceCell<Mode> = OnceCell::new();
    MODE.get_or_try_init(|| parse(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_three_values() {
        assert_eq!(parse("").unwrap(), Mode::On);
        assert_eq!(parse("1").unwrap(), Mode::On);
        assert_eq!(parse(" 0 ").unwrap(), Mode::Off);
        assert_eq!(parse("wait").unwrap(), Mode::Wait);
        assert_eq!(parse("yes").unwrap_err().status(), Status::INVALID_CONFIGURATION);
    }
}
