//! Texts that the library carries: kernels, what the jiterator compiles functions with, the page of a snapshot. They are
//! most of the library's constants, and seldom needed, so they are compressed when it is built (build.rs).

use crate::{
    error::{Error, Result},
    status::Status,
};

/// A text, as zlib's format has it.
#[derive(Debug, Clone, Copy)]
pub struct Packed(pub &'static [u8]);

impl Packed {
    /// The text.
    pub fn text(self) -> Result<String> {
        let text = miniz_oxide::inflate::decompress_to_vec_zlib(self.0).ok();
        text.and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| Error::new(Status::PANIC, "a text of the library's is damaged"))
    }
}

/// The text of a file that build.rs packs, by its name alone.
macro_rules! packed {
    ($file:literal) => {
        $crate::base::embedded::Packed(include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".z")))
    };
}

pub(crate) use packed;
