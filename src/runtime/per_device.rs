//! State that a subsystem keeps for each device, in a static of its own.

use super::{device::Device, thread::MAX_DEVICES};
use once_cell::sync::OnceCell;

/// A value for each device, created at its first use. A subsystem declares one as a static and gives [`Device`] a method for it,
/// so that the device does not have to know the subsystems.
pub struct PerDevice<T> {
    values: [OnceCell<T>; MAX_DEVICES],
}

impl<T: Default> PerDevice<T> {
    /// Values that do not exist yet.
    pub const fn new() -> Self {
        PerDevice { values: [const { OnceCell::new() }; MAX_DEVICES] }
    }

    /// Returns a device's value.
    #[inline]
    pub fn of(&self, device: &Device) -> &T {
        // A process has at most MAX_DEVICES devices, so the remainder only saves a check.
        self.values[device.ordinal as usize % MAX_DEVICES].get_or_init(T::default)
    }
}

impl<T: Default> Default for PerDevice<T> {
    fn default() -> Self {
        Self::new()
    }
}
