//! What the environment says of the allocator: `PLINTH_ALLOC_CONF`, in the grammar of torch's own variable.

use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;

const VARIABLE: &str = "PLINTH_ALLOC_CONF";

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Whether memory is mapped into reserved ranges where the driver can do that.
    pub expandable_segments: bool,
}

static CONFIG: OnceCell<Config> = OnceCell::new();

/// What was chosen; read from the environment once.
pub fn get() -> Result<Config> {
    CONFIG
        .get_or_try_init(|| {
            let text = std::env::var_os(VARIABLE).unwrap_or_default();
            parse(&text.to_string_lossy())
        })
        .copied()
}

fn parse(text: &str) -> Result<Config> {
    let mut config = Config { expandable_segments: true };
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let wrong = |what: String| Err(Error::new(Status::INVALID_CONFIGURATION, format!("{VARIABLE}: {what}")));
        let Some((key, value)) = pair.split_once(':') else {
            return wrong(format!("{pair:?} is not of the form key:value"));
        };
        match (key.trim(), value.trim()) {
            ("expandable_segments", "True") => config.expandable_segments = true,
            ("expandable_segments", "False") => config.expandable_segments = false,
            ("expandable_segments", other) => {
                return wrong(format!("expandable_segments is True or False, not {other:?}"));
            }
            (other, _) => return wrong(format!("unrecognized key {other:?}")),
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_torchs() {
        assert!(parse("").unwrap().expandable_segments);
        assert!(!parse(" expandable_segments : False ,").unwrap().expandable_segments);
        assert!(parse("expandable_segments:False,expandable_segments:True").unwrap().expandable_segments);
        for wrong in ["expandable_segments", "expandable_segments:yes", "max_split_size_mb:32"] {
            assert_eq!(parse(wrong).unwrap_err().status(), Status::INVALID_CONFIGURATION, "{wrong}");
        }
    }
}
