//! Images of modules: what a compiler made, for a driver to load.

/// The code of a module: PTX, a cubin or a fatbin for a GPU, a shared library for the host device.
#[derive(Clone, PartialEq, Eq)]
pub struct Image(Vec<u8>);

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Image of {} bytes", self.0.len())
    }
}

impl Image {
    /// An image that somebody vouches for.
    ///
    /// # Safety
    /// The bytes are an image as compilers make them: drivers find its end by what it says of itself.
    pub unsafe fn new(bytes: &[u8]) -> Image {
        Image::from_compiler(bytes.to_vec())
    }

    /// An image that a compiler made, now or, with a checksum over it, in an earlier run.
    pub fn from_compiler(mut bytes: Vec<u8>) -> Image {
        // Text ends in a NUL.
        if bytes.last() != Some(&0) {
            bytes.push(0);
        }
        Image(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
