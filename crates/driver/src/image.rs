//! Module images: compiler output that a driver loads.

/// The code of a module: PTX, a cubin or a fatbin for a GPU, a shared library for the host device.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Vec<u8>);

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Image of {} bytes", self.0.len())
    }
}

impl Image {
    /// Wraps the output of a compiler.
    ///
    /// # Safety
    /// The bytes are a complete image as a compiler emits it: drivers find its end from its own header. Its kernels take
    /// the parameters with which they are launched.
    pub unsafe fn new(mut bytes: Vec<u8>) -> Image {
        // PTX text must be NUL-terminated.
        if bytes.last() != Some(&0) {
            bytes.push(0);
        }
        Image(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
