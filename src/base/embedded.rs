//! Texts embedded in the library: kernels, the headers that the jiterator and the host device compile with, and the HTML
//! page of a snapshot. They are most of the library's constants and are seldom needed, so build.rs compresses them.

use crate::{
    error::{Error, Result},
    status::Status,
};
use lzma_rust2::LzmaReader;
use std::io::Read;

/// A compressed text, in the format of .lzma files.
#[derive(Debug, Clone, Copy)]
pub struct CompressedText(pub &'static [u8]);

impl CompressedText {
    /// Decompresses the text.
    pub fn decompress(self) -> Result<String> {
        let mut text = String::new();
        LzmaReader::new_mem_limit(self.0, u32::MAX, None)
            .and_then(|mut reader| reader.read_to_string(&mut text))
            .map_err(|error| Error::new(Status::PANIC, format!("an embedded text is damaged: {error}")))?;
        Ok(text)
    }
}

/// Embeds a file that build.rs compressed, by its name alone.
macro_rules! embedded_text {
    ($file:literal) => {
        $crate::base::embedded::CompressedText(include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".lzma")))
    };
}

pub(crate) use embedded_text;
