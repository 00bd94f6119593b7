//! The generator of random numbers from which programs are made: the same numbers on every machine.

/// Steele, Lea and Flood's SplitMix64.
pub struct Random(u64);

impl Random {
    /// Creates the generator of one program.
    pub fn new(seed: u64, program: u32) -> Random {
        let mut mixed = Random(seed ^ 0x6a09_e667_f3bc_c908);
        let start = mixed.next().wrapping_add(u64::from(program).wrapping_mul(0xd134_2543_de82_ef95));
        Random(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(limit.max(1))) >> 64) as u32
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Returns one element of a list, which is not empty.
    pub fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_everywhere() {
        let mut random = Random::new(1, 2);
        let numbers: Vec<u32> = (0..6).map(|_| random.below(1000)).collect();
        assert_eq!(numbers, [996, 780, 579, 178, 418, 198]);
    }
}
