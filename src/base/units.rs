//! Human-readable byte counts.

use std::fmt;

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Formats a byte count in the largest unit that it fills, with two decimals: "1.31 GiB", "512 bytes".
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) => write!(formatter, "{:.2} {unit}", self.0 as f64 / *size as f64),
            None => write!(formatter, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_the_largest_unit() {
        assert_eq!(Bytes(0).to_string(), "0 bytes");
        assert_eq!(Bytes(1023).to_string(), "1023 bytes");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes(2 << 30).to_string(), "2.00 GiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16777216.00 TiB");
    }
}
