//! The headers with which the host device compiles kernels: the files of `kernels/host/`.

use crate::base::embedded::{CompressedText, embedded_text};

/// For each file its path in the folder and its text, both with a zero at the end.
pub const HEADERS: CompressedText = embedded_text!("host_headers");

/// Returns the path and the text of each file of the decompressed headers.
pub fn files(headers: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = headers.split_terminator('\0');
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, fs, path::Path};

    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
    }

    #[test]
    fn every_file_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/host");
        let headers = HEADERS.decompress().unwrap();
        let names: HashSet<&str> = files(&headers).map(|(name, _)| name).collect();
        assert_eq!(names.len(), count(&folder));
        for (name, text) in files(&headers) {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), text, "{name}");
        }
    }
}
