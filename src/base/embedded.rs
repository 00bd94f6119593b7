//! Texts embedded in the library: kernels, the headers that the jiterator and the host device compile with, and the HTML
//! page of a snapshot. They are most of the library's constants and are seldom needed, so build.rs compresses them.

use crate::{
    error::{Error, Result},
    status::Status,
};

/// A text in zlib's compressed format.
#[derive(Debug, Clone, Copy)]
pub struct CompressedText(pub &'static [u8]);

impl CompressedText {
    /// Decompresses the text.
    pub fn decompress(self) -> Result<String> {
        let text = miniz_oxide::inflate::decompress_to_vec_zlib(self.0).ok();
        text.and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| Error::new(Status::PANIC, "an embedded text is damaged"))
    }
}

/// Embeds a file that build.rs compressed, by its name alone.
macro_rules! embedded_text {
    ($file:literal) => {
        $crate::base::embedded::CompressedText(include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".z")))
    };
}

pub(crate) use embedded_text;
