//! What a capture uses beside memory, and its graph must keep for its replays: plans of transforms, say.

use parking_lot::Mutex;
use std::{any::Any, sync::Arc};

/// Something that lives for as long as somebody keeps it.
pub type Thing = Arc<dyn Any + Send + Sync>;

/// The captures of this library's that go on, and what each has used. They are few.
static CAPTURES: Mutex<Vec<(u64, Vec<Thing>)>> = Mutex::new(Vec::new());

/// Notes that a capture begins.
pub fn begin(capture: u64) {
    CAPTURES.lock().push((capture, Vec::new()));
}

/// Notes that a capture has ended. What it has used is the caller's.
pub fn end(capture: u64) -> Vec<Thing> {
    let mut captures = CAPTURES.lock();
    let index = captures.iter().position(|(number, _)| *number == capture);
    index.map(|index| captures.swap_remove(index).1).unwrap_or_default()
}

/// Whether a capture of this number is one of this library's, and goes on.
pub fn goes_on(capture: u64) -> bool {
    CAPTURES.lock().iter().any(|(number, _)| *number == capture)
}

/// Notes that a capture uses something. False if the capture is none of this library's: then nobody will say when its
/// graph is gone.
pub fn keep(capture: u64, thing: &Thing) -> bool {
    let mut captures = CAPTURES.lock();
    let Some((_, things)) = captures.iter_mut().find(|(number, _)| *number == capture) else { return false };
    if !things.iter().any(|known| Arc::ptr_eq(known, thing)) {
        things.push(thing.clone());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_keeps_what_it_uses_once() {
        const CAPTURE: u64 = u64::MAX - 7;
        let thing: Thing = Arc::new(5);
        assert!(!goes_on(CAPTURE) && !keep(CAPTURE, &thing));
        begin(CAPTURE);
        assert!(goes_on(CAPTURE) && keep(CAPTURE, &thing) && keep(CAPTURE, &thing));
        assert_eq!(Arc::strong_count(&thing), 2);
        assert_eq!(end(CAPTURE).len(), 1);
        assert!(!goes_on(CAPTURE) && end(CAPTURE).is_empty());
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}
